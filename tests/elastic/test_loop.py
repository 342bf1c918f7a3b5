"""A training run goes on through losses, and computes what an undisturbed one computes."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from pathways_jupyter import elastic
from pathways_jupyter.elastic.record import Kind, Record

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

    def __init__(self) -> None:
        self.number = 0
        self.at: dict[int, threading.Event] = {}

    def __iter__(self):
        return self

    def __next__(self):
        x = np.random.default_rng(self.number).normal(size=(ROWS, FEATURES)).astype(np.float32)
        if self.number in self.at:
            self.at.pop(self.number)()
        self.number += 1
        return {"x": x, "y": x @ WEIGHTS}


class Positioned(Data):
    def get_state(self):
        return {"number": self.number}

    def set_state(self, state):
        self.number = state["number"]


def undisturbed(steps: int) -> dict[int, float]:
    """The losses that NumPy gives."""
    weights, losses, data = np.zeros((FEATURES, 4), np.float32), {}, Data()
    for number in range(steps):
        batch = next(data)
        error = batch["x"] @ weights - batch["y"]
        losses[number] = float((error**2).mean())
        weights = weights - 0.05 * 2 * batch["x"].T @ error / error.size
    return losses


def check(result: elastic.Result, steps: int) -> None:
    """Every step was applied once, with its own batch."""
    assert result.step == steps
    assert [result.metrics[number]["n"] for number in range(steps)] == list(range(steps))
    expected = undisturbed(steps)
    assert [result.metrics[number]["loss"] for number in range(steps)] == pytest.approx(
        [expected[number] for number in range(steps)], rel=1e-4, abs=1e-6
    )
    assert int(np.asarray(result.state["n"])) == steps


@pytest.mark.parametrize("source", [Data, Positioned])
@pytest.mark.parametrize("where", ["hosts", "notebook"])
def test_a_run_that_loses_a_slice_continues_on_two_and_grows_again(session, take_down, source, where):
    data, record, grown = source(), Record(), threading.Event()
    # In the middle between two snapshots.
    # For long enough that it is not back before anything has noticed.
    data.at[27] = lambda: take_down(1, seconds=2)
    record.listeners.append(lambda event: event.kind is Kind.GROWN and grown.set())

    manager = elastic.Manager(settle_seconds=0.05)
    result = elastic.train_loop(
        step,
        first_state(),
        data,
        steps=400,
        snapshots=elastic.Snapshots(where=where),
        manager=manager,
        record=record,
        precompile=True,
    )
    check(result, 400)
    kinds = [event.kind for event in record.events]
    assert kinds.index(Kind.DETECTED) < kinds.index(Kind.RESTORED) < kinds.index(Kind.RESUMED)
    restored = next(event for event in record.events if event.kind is Kind.RESTORED)
    assert 0 <= restored.data["repeated"] <= 20
    assert set(restored.slices) == {0, 2}
    assert manager.elastic_down_event_count >= 1


def test_with_too_few_slices_a_run_pauses_and_says_so(session, take_down):
    data, record = Data(), Record()
    data.at[15] = lambda: take_down(2)
    result = elastic.train_loop(
        step,
        first_state(),
        data,
        steps=30,
        minimum_slices=3,
        manager=elastic.Manager(settle_seconds=0.05),
        record=record,
    )
    check(result, 30)
    paused = next(event for event in record.events if event.kind is Kind.WAITING)
    assert "2 of at least 3 slices" in paused.message
    assert result.goodput.seconds()["ELASTIC_SLICE_DOWN"] > 0


def test_two_slices_at_once(session, take_down):
    data = Data()

    def both():
        take_down(0)
        take_down(2)

    data.at[13] = both
    check(elastic.train_loop(step, first_state(), data, steps=40), 40)


def test_the_batch_follows_the_slices_and_no_row_is_lost_or_used_twice(session, take_down):
    """Each row counts itself: the sum of all rows that were used says whether one was lost."""
    import jax.numpy as jnp

    rows = iter(np.arange(1, 24 * 100 + 1, dtype=np.float32).reshape(100, 24, 1))

    def count(state, batch):
        return {"sum": state["sum"] + batch.sum(), "rows": state["rows"] + batch.shape[0]}, {
            "rows": jnp.float32(batch.shape[0])
        }

    def source():
        for number, batch in enumerate(rows):
            if number == 12:
                take_down(1, seconds=8)
            yield batch

    result = elastic.train_loop(
        count, {"sum": np.float32(0), "rows": np.int32(0)}, source(), steps=30, batch="scale", snapshot_every=5
    )
    used = int(np.asarray(result.state["rows"]))
    assert float(np.asarray(result.state["sum"])) == used * (used + 1) / 2
    assert {int(each["rows"]) for each in result.metrics.values()} == {24, 16}


def test_an_interrupted_run_resumes_from_its_snapshots(session):
    snapshots, data = elastic.Snapshots(), Data()

    def interrupt():
        raise KeyboardInterrupt

    data.at[33] = interrupt
    with pytest.raises(KeyboardInterrupt):
        elastic.train_loop(step, first_state(), data, steps=60, snapshots=snapshots)
    latest = snapshots.latest()
    assert latest is not None
    assert latest.step >= 20
    data = Data()
    data.number = latest.step
    record = Record()
    result = elastic.train_loop(step, first_state(), data, steps=60, snapshots=snapshots, record=record)
    assert result.step == 60
    expected = undisturbed(60)
    assert result.metrics[59]["loss"] == pytest.approx(expected[59], rel=1e-4)


def test_a_state_without_room_for_its_snapshots_is_refused_before_anything_starts(session):
    with pytest.raises(elastic.ElasticRuntimeError, match=r"need 0\.0\d GB .* may take 0\.00 GB"):
        elastic.train_loop(
            step,
            {**first_state(), "large": np.zeros(1_000_000, np.float32)},
            Data(),
            steps=1,
            snapshots=elastic.Snapshots(where="notebook", limit_bytes=1000),
        )


def test_the_log_has_the_lines_that_scripts_read(session, caplog):
    with caplog.at_level("INFO", logger="pathways_jupyter.elastic"):
        elastic.train_loop(step, first_state(), Data(), steps=3)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("step=")]
    assert lines[0].startswith(
        "step=0 elastic_manager.elastic_down_event_count=0 elastic_manager.good_slice_count=3 loss="
    )


def test_an_error_of_the_step_is_not_taken_for_a_loss(session):
    def wrong(state, batch):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        elastic.train_loop(wrong, first_state(), Data(), steps=3)
