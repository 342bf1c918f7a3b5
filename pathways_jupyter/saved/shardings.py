"""Shardings by the positions of their devices among the session's, so that other slices of the same kind serve.

On fewer or more slices, a mesh over all of them gets its slices fewer or more along the axis that counts them, and an
array the same partition of it. A mesh on some of the slices stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


def describe(sharding: Any, devices: Sequence[Any]) -> dict[str, Any]:
    """Return a sharding on some of `devices` as JSON values.

    Raises:
      TypeError: It cannot be described; the message is the end of a sentence about its array.
    """
    import jax

    position = {device: number for number, device in enumerate(devices)}
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        (device,) = sharding.device_set
        return {"devices": [position[device]], "memory": sharding.memory_kind}
    if not isinstance(sharding, jax.sharding.NamedSharding) or not isinstance(sharding.mesh, jax.sharding.Mesh):
        raise TypeError(f"has a {type(sharding).__name__}; give it a NamedSharding with jax.device_put")
    mesh, spec = sharding.mesh, sharding.spec
    if spec.unreduced or spec.reduced:
        raise TypeError(f"has the sharding {spec}; sum it up first")
    return {
        "devices": [position[device] for device in mesh.devices.flat],
        "shape": list(mesh.devices.shape),
        "axes": list(mesh.axis_names),
        "types": [each.name for each in mesh.axis_types],
        "spec": [list(each) if isinstance(each, tuple) else each for each in spec],
        "memory": sharding.memory_kind,
    }


def read(described: Mapping[str, Any], devices: Sequence[Any]) -> Any:
    """Return the sharding on `devices` that :func:`describe` has described.

    Raises:
      LookupError, TypeError, ValueError: It is no description, or needs more devices.
    """
    import jax

    positions = described["devices"]
    if any(not isinstance(each, int) or each < 0 for each in positions):
        raise TypeError("devices are named by their positions")
    if max(positions) >= len(devices):
        raise LookupError(f"it was saved from at least {max(positions) + 1} chips, and here are {len(devices)}")
    found = [devices[each] for each in positions]
    if "axes" not in described:
        return jax.sharding.SingleDeviceSharding(found[0], memory_kind=described["memory"])
    types = tuple(jax.sharding.AxisType[each] for each in described["types"])
    grid = np.array(found, object).reshape(described["shape"])
    mesh = jax.sharding.Mesh(grid, tuple(described["axes"]), axis_types=types)
    spec = jax.sharding.PartitionSpec(*(tuple(each) if isinstance(each, list) else each for each in described["spec"]))
    return jax.sharding.NamedSharding(mesh, spec, memory_kind=described["memory"])


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
            found = np.array([now[each] for each in grid.flat], object).reshape(grid.shape)
            return jax.sharding.Mesh(found, mesh.axis_names, axis_types=mesh.axis_types)

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
