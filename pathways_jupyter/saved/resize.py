"""Places of arrays on other slices than they were saved from, perhaps on fewer or more.

Devices are known by their positions among the session's. A mesh over all slices gets its slices fewer or more along the
axis that counts them, and an array the same partition of it. A mesh on some of the slices stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Resize:
    """Another number of slices.

    Attributes:
      before: The number of slices that there were.
      now: How many there are.
      devices: The number of devices on each.
    """

    before: int
    now: int
    devices: int

    def grid(self, positions: np.ndarray) -> np.ndarray | None:
        """Return the positions of a mesh's devices now, given those before; None if it cannot be on these slices."""
        if self.before != self.now and set(positions.flat) == set(range(self.before * self.devices)):
            for axis, length in enumerate(positions.shape):
                if length % self.before:
                    continue
                first, *others = np.split(positions, self.before, axis)
                if all(np.array_equal(each, first + (n + 1) * self.devices) for n, each in enumerate(others)):
                    return np.concatenate([first + n * self.devices for n in range(self.now)], axis)
        return positions if positions.max(initial=-1) < self.now * self.devices else None

    def described(self, array: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the description of an array on the slices of now; None if its sharding does not fit them.

        Raises:
          LookupError, TypeError, ValueError: It is no description.
        """
        sharding = array["sharding"]
        positions = np.array(sharding["devices"]).reshape(sharding.get("shape", [1]))
        if not positions.size:
            raise ValueError("a sharding without devices")
        grid = self.grid(positions)
        if grid is None:
            return None
        moved = {**sharding, "devices": grid.flatten().tolist()}
        if "axes" in sharding:
            moved["shape"] = list(grid.shape)
            lengths = dict(zip(sharding["axes"], grid.shape, strict=True))
            for length, names in zip(array["shape"], sharding["spec"], strict=False):
                parts = [names] if isinstance(names, str) else names or []
                if length % math.prod(lengths[each] for each in parts):
                    return None
        return {**array, "sharding": moved}

    def mover(self, before: Sequence[Any], now: Sequence[Any]) -> Callable[[Any], Any]:
        """Return what makes of a device, mesh or sharding on the devices of `before` that on those of `now`.

        What cannot be on these stays as it was.
        """
        import jax

        positions = {device: number for number, device in enumerate(before)}
        devices = dict(zip(before, now, strict=False))

        def mesh_of(mesh: Any) -> Any:
            if not isinstance(mesh, jax.sharding.Mesh) or not set(mesh.devices.flat) <= positions.keys():
                return mesh
            old = np.array([positions[each] for each in mesh.devices.flat], int).reshape(mesh.devices.shape)
            if (grid := self.grid(old)) is None:
                return mesh
            devices = np.array([now[each] for each in grid.flat], object).reshape(grid.shape)
            return jax.sharding.Mesh(devices, mesh.axis_names, axis_types=mesh.axis_types)

        def move(value: Any) -> Any:
            if isinstance(value, jax.Device):
                return devices.get(value, value)
            if isinstance(value, jax.sharding.NamedSharding):
                mesh = mesh_of(value.mesh)
                if mesh is value.mesh:
                    return value
                return jax.sharding.NamedSharding(mesh, value.spec, memory_kind=value.memory_kind)
            if isinstance(value, jax.sharding.SingleDeviceSharding):
                new = devices.get(*value.device_set)
                return value if new is None else jax.sharding.SingleDeviceSharding(new, memory_kind=value.memory_kind)
            return mesh_of(value)

        return move
