"""A small training run whose every step can be checked: what it computes, with which batch, and how often."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pathways_jupyter import elastic

ROWS, FEATURES = 24, 16
WEIGHTS = np.random.default_rng(0).normal(size=(FEATURES, 4)).astype(np.float32)


def step(state, batch):
    import jax

    def loss(weights):
        return ((batch["x"] @ weights - batch["y"]) ** 2).mean()

    value, gradient = jax.value_and_grad(loss)(state["w"])
    key = jax.random.split(state["key"])[0]
    return {"w": state["w"] - 0.05 * gradient, "key": key, "n": state["n"] + 1}, {"loss": value, "n": state["n"]}


def first_state():
    import jax

    return {"w": np.zeros((FEATURES, 4), np.float32), "key": jax.random.key(7), "n": np.int32(0)}


class Data:
    """Batches that depend on their number alone; optionally with a position that can be saved, as grain's have."""

    def __init__(self, rows: int = ROWS) -> None:
        self.number, self.rows = 0, rows
        self.at: dict[int, Callable[[], object]] = {}
        """Callbacks before batches, each called once."""

    def __iter__(self):
        return self

    def __next__(self):
        x = np.random.default_rng(self.number).normal(size=(self.rows, FEATURES)).astype(np.float32)
        if self.number in self.at:
            self.at.pop(self.number)()
        self.number += 1
        return {"x": x, "y": x @ WEIGHTS}


class Positioned(Data):
    def get_state(self):
        return {"number": self.number}

    def set_state(self, state):
        self.number = state["number"]


def undisturbed(steps: int, rows: int) -> dict[int, float]:
    """The losses that NumPy gives."""
    weights, losses, data = np.zeros((FEATURES, 4), np.float32), {}, Data(rows)
    for number in range(steps):
        batch = next(data)
        error = batch["x"] @ weights - batch["y"]
        losses[number] = float((error**2).mean())
        weights = weights - 0.05 * 2 * batch["x"].T @ error / error.size
    return losses


def check(result: elastic.Result, steps: int, *, since: int = 0, rows: int = ROWS) -> None:
    """Every step from `since` on was applied once, with its own batch."""
    assert result.step == steps
    assert [result.metrics[number]["n"] for number in range(since, steps)] == list(range(since, steps))
    expected = undisturbed(steps, rows)
    assert [result.metrics[number]["loss"] for number in range(since, steps)] == pytest.approx(
        [expected[number] for number in range(since, steps)], rel=1e-4, abs=1e-6
    )
    assert int(np.asarray(result.state["n"])) == steps
