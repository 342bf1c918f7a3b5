"""A small network trained over all slices in plain JAX, with snapshots on the host that survive the loss of a slice.

Data-parallel: each chip has its rows of the data, and the parameters are replicated on every chip. Losing one slice
makes the replicated arrays unusable, so training can only resume from a snapshot on the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_ROWS, _INPUTS, _HIDDEN, _OUTPUTS = 1024, 16, 64, 4
_RATE, _MOMENTUM = 0.1, 0.9
_EVERY = 10

Tree = Any


def mesh(slices: Mapping[int, Sequence[Any]]) -> Mesh:
    """The devices as a grid of slices and their chips."""
    return Mesh(np.array([list(devices) for devices in slices.values()]), ("slice", "chip"))


def loss(weights: Tree, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean squared error of a multilayer perceptron, `inputs` [rows, 16] to outputs [rows, 4]."""
    hidden = jnp.tanh(inputs @ weights["in"] + weights["bias"])
    return jnp.mean((hidden @ weights["out"] - targets) ** 2)


@jax.jit  # type: ignore[untyped-decorator]
def step(state: Tree, inputs: jax.Array, targets: jax.Array) -> tuple[Tree, jax.Array]:
    """One step of gradient descent with momentum; returns the new state and the loss before it."""
    value, gradients = jax.value_and_grad(loss)(state["weights"], inputs, targets)
    velocity = jax.tree.map(lambda old, new: _MOMENTUM * old + new, state["velocity"], gradients)
    weights = jax.tree.map(lambda weight, change: weight - _RATE * change, state["weights"], velocity)
    return {"weights": weights, "velocity": velocity, "count": state["count"] + 1}, value


class Trainer:
    """Training that can resume from its last snapshot."""

    def __init__(self, devices: Mesh) -> None:
        self._everywhere = NamedSharding(devices, PartitionSpec())
        self._by_rows = NamedSharding(devices, PartitionSpec(("slice", "chip")))
        random = np.random.default_rng(0)
        weights = {
            "in": random.standard_normal((_INPUTS, _HIDDEN), dtype=np.float32) / _INPUTS**0.5,
            "bias": np.zeros(_HIDDEN, dtype=np.float32),
            "out": random.standard_normal((_HIDDEN, _OUTPUTS), dtype=np.float32) / _HIDDEN**0.5,
        }
        velocity = jax.tree.map(np.zeros_like, weights)
        self._snapshot: Tree = {"weights": weights, "velocity": velocity, "count": np.int32(0)}
        self._rows = random.standard_normal((_ROWS, _INPUTS), dtype=np.float32)
        self._wanted = np.sin(self._rows @ random.standard_normal((_INPUTS, _OUTPUTS), dtype=np.float32) / 2)
        self._state: Tree
        self._inputs: jax.Array
        self._targets: jax.Array
        self._load()

    def train(self, steps: int) -> list[float]:
        """Train for `steps`; return the loss before each of them.

        Raises:
          jax.errors.JaxRuntimeError: A slice was lost meanwhile (DATA_LOSS).
        """
        losses = []
        for number in range(1, steps + 1):
            self._state, value = step(self._state, self._inputs, self._targets)
            losses.append(value)
            if number % _EVERY == 0:
                self._snapshot = jax.device_get(self._state)
        return [float(value) for value in losses]

    def failure(self) -> str:
        """Run one more step, which should fail; return the first line of its error."""
        try:
            self.train(1)
        except jax.errors.JaxRuntimeError as error:
            return str(error).partition("\n")[0]
        return "no error"

    def resume(self, steps: int) -> tuple[int, list[float]]:
        """Restore the last snapshot on all devices and train on; return its step and the losses since."""
        self._load()
        return int(self._snapshot["count"]), self.train(steps)

    def _load(self) -> None:
        self._state = jax.device_put(self._snapshot, self._everywhere)
        self._inputs = jax.device_put(self._rows, self._by_rows)
        self._targets = jax.device_put(self._wanted, self._by_rows)
