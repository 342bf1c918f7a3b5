"""Shardings of arrays as JSON; both the notebook and its hosts write and read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np


def write(sharding: Any) -> dict[str, Any]:
    """Return `sharding` as JSON values; devices are named by their ids.

    Raises:
      TypeError: It is neither a NamedSharding of a mesh with devices nor on a single device.
    """
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        (device,) = sharding.device_set
        return {"devices": [device.id], "memory": sharding.memory_kind}
    if not isinstance(sharding, jax.sharding.NamedSharding) or not isinstance(sharding.mesh, jax.sharding.Mesh):
        raise TypeError(f"has a {type(sharding).__name__}; give it a NamedSharding with jax.device_put.")
    mesh, spec = sharding.mesh, sharding.spec
    if spec.unreduced or spec.reduced:
        raise TypeError(f"has the sharding {spec}, which cannot be described; sum it up first.")
    return {
        "devices": [device.id for device in mesh.devices.flat],
        "shape": list(mesh.devices.shape),
        "axes": list(mesh.axis_names),
        "types": [each.name for each in mesh.axis_types],
        "spec": [list(each) if isinstance(each, tuple) else each for each in spec],
        "memory": sharding.memory_kind,
    }


def read(written: dict[str, Any], devices: Iterable[jax.Device]) -> Any:
    """Return the sharding that :func:`write` described.

    Args:
      devices: Those that it may name.

    Raises:
      LookupError, TypeError, ValueError: It is not one.
    """
    by_id = {device.id: device for device in devices}
    found = [by_id[each] for each in written["devices"]]
    if "axes" not in written:
        return jax.sharding.SingleDeviceSharding(found[0], memory_kind=written["memory"])
    types = tuple(jax.sharding.AxisType[each] for each in written["types"])
    grid = np.array(found, object).reshape(written["shape"])
    mesh = jax.sharding.Mesh(grid, tuple(written["axes"]), axis_types=types)
    spec = jax.sharding.PartitionSpec(*(tuple(each) if isinstance(each, list) else each for each in written["spec"]))
    return jax.sharding.NamedSharding(mesh, spec, memory_kind=written["memory"])
