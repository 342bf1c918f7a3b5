"""Arrays that go back to the notebook: what each is, and where its shards lie.

A value that is a global JAX array goes back as it is. One that every host has for itself (NumPy, or a JAX array on this
host's devices alone) becomes a part of a global array: the hosts' parts one after the other along the first axis.
"""

from __future__ import annotations

import base64
import threading
from collections import OrderedDict
from typing import Any

import jax
import numpy as np
from jax.experimental.colocated_python import serialization

_KEPT = 16
_lock = threading.Lock()
_stash: OrderedDict[str, dict[str, Any]] = OrderedDict()


def keep(call: str, values: dict[str, Any], mesh: jax.sharding.Mesh) -> list[dict[str, Any]]:
    """Keeps `values` until they are fetched; returns what each is, as JSON values.

    Args:
      call: The key to fetch them by.
      values: The values by name.
      mesh: The devices of the call.

    Raises:
      TypeError: A value is not an array, or its sharding cannot be described.
    """
    specs = []
    kept: dict[str, Any] = {}
    for name, value in values.items():
        spec, kept[name] = _local(name, value) if _is_local(value, mesh) else _global(name, value)
        specs.append({"name": name, **spec})
    with _lock:
        _stash[call] = kept
        while len(_stash) > _KEPT:
            _stash.popitem(last=False)
    return specs


def take(call: str, names: list[str], shardings: list[tuple[tuple[int, ...], Any]]) -> list[jax.Array]:
    """Hands out what was kept under these names, as parts of global arrays of these shapes and shardings."""
    with _lock:
        kept = [_stash[call].pop(name) for name in names]
        if not _stash[call]:
            del _stash[call]
    return [
        array if isinstance(array, jax.Array) else assemble(array, shape, sharding)
        for array, (shape, sharding) in zip(kept, shardings, strict=True)
    ]


def unwrap(row: jax.Array, described: str) -> jax.Array:
    """An array that is not on all devices of the call, from the rows in which it travelled (see `placement.wrap`)."""
    spec = serialization._deserialize(base64.b64decode(described))
    by_device = {shard.device: shard.data for shard in row.addressable_shards}
    shards = [by_device[device][0] for device in spec.sharding.addressable_devices_indices_map(spec.shape)]
    return jax.make_array_from_single_device_arrays(spec.shape, spec.sharding, shards, dtype=spec.dtype)


def assemble(local: np.ndarray, shape: tuple[int, ...], sharding: Any) -> jax.Array:
    """A global array whose shards on this host, in order along the first axis, make up `local`."""
    indices = sharding.addressable_devices_indices_map(shape)
    first = min((index[0].start or 0 for index in indices.values() if index), default=0)
    shards = []
    for device, index in indices.items():
        rows = index[0] if index else slice(None)
        start = (rows.start or 0) - first
        stop = (shape[0] if rows.stop is None else rows.stop) - first
        shards.append(jax.device_put(local[(slice(start, stop), *index[1:])], device))
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)


def rows(shape: tuple[int, ...], sharding: Any) -> int:
    """How many rows of such a global array are on this host."""
    indices = sharding.addressable_devices_indices_map(shape).values()
    starts = [index[0].start or 0 for index in indices]
    stops = [shape[0] if index[0].stop is None else index[0].stop for index in indices]
    return int(max(stops) - min(starts))


def _is_local(value: Any, mesh: jax.sharding.Mesh) -> bool:
    if not isinstance(value, jax.Array):
        return isinstance(value, (np.ndarray, np.generic, int, float, bool, complex))
    everywhere = mesh.size == len(mesh.local_devices)
    return value.is_fully_addressable and not everywhere


def _local(name: str, value: Any) -> tuple[dict[str, Any], Any]:
    array = np.atleast_1d(np.asarray(value))
    if array.dtype == object:
        raise TypeError(f"{name} is a NumPy array of Python objects, which cannot travel.")
    return {
        "local": True,
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "sharding": "",
    }, array


def _global(name: str, value: Any) -> tuple[dict[str, Any], Any]:
    if not isinstance(value, jax.Array):
        raise TypeError(f"{name} is a {type(value).__name__}, not an array.")
    sharding = value.sharding
    if not isinstance(sharding, (jax.sharding.NamedSharding, jax.sharding.SingleDeviceSharding)):
        raise TypeError(f"{name} has a {type(sharding).__name__}; give it a NamedSharding with jax.device_put.")
    described = serialization._serialize(jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding))
    return {
        "local": False,
        "shape": list(value.shape),
        "dtype": str(value.dtype),
        "sharding": base64.b64encode(described).decode(),
    }, value
