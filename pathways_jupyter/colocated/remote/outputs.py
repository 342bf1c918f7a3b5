"""Outputs of a cell for the notebook: its variables, taken apart into arrays and the rest, and where the arrays lie.

Arrays travel as arrays, everything else in a variable as `value_writer.py` writes it. A number that is a variable by
itself counts as an array, so that every host's makes one array in the notebook; a number inside of something else is
part of that.

A value that is a global JAX array goes back as it is. One that every host has for itself (NumPy, or a JAX array on this
host's devices alone) becomes a part of a global array: the hosts' parts one after the other along the first axis. A
notebook without 64-bit types gets 32 bits, rounded as JAX rounds; what 32 bits cannot hold is described as wide.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import jax
import numpy as np

from . import shardings
from .value_writer import Writer

_NUMBERS = (bool, int, float, complex, np.generic)
_MAX_CALLS = 16
_lock = threading.Lock()
_arrays: OrderedDict[str, dict[str, tuple[bool, Any]]] = OrderedDict()
"""By call and name: whether it is this host's part of a global array, and the array."""


def split(requested: list[str], names: dict[str, Any], writer: Writer) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return variables by name: the arrays, and as JSON values whatever is more than an array.

    Args:
      requested: Names of variables.
      names: All of the cell's.
      writer: Writes the JSON values. It names the arrays inside of a variable like ``params['w']``.

    Raises:
      NameError: The cell did not define a name.
      TypeError: Something cannot be sent; the message names it.
    """
    absent = [name for name in requested if name not in names]
    if absent:
        raise NameError(f"--out names {', '.join(absent)}, which this cell did not define.")
    kept: dict[str, Any] = {}
    written: dict[str, Any] = {}
    for name in requested:
        value = names[name]
        if is_array(value) or (isinstance(value, _NUMBERS) and _has_dtype(np.asarray(value))):
            kept[name] = value
            continue
        writer.arrays = {}
        written[name] = writer.write(value, name)
        # Sorted, since a dict may have another order on another host.
        kept.update(sorted(writer.arrays.items()))
    return kept, written


def keep(
    call: str, values: dict[str, Any], mesh: jax.sharding.Mesh, inputs: tuple[jax.Array, ...]
) -> list[dict[str, Any]]:
    """Keep `values` until they are fetched; return what each is, as JSON values.

    Args:
      call: The key to fetch them by.
      values: The values by name.
      mesh: The devices of the call.
      inputs: The call's inputs: those that lie on devices are global, also where one host has all of such an array.

    Raises:
      TypeError: A value is not an array, or its sharding cannot be described.
    """
    global_ = {id(array) for array in inputs if array.committed}
    specs = []
    held: dict[str, tuple[bool, Any]] = {}
    for name, value in values.items():
        if isinstance(value, jax.Array):
            everywhere = mesh.size == len(mesh.local_devices)
            local = id(value) not in global_ and value.is_fully_addressable and not everywhere
        else:
            local = isinstance(value, (np.ndarray, *_NUMBERS))
        spec, array = _local(name, value) if local else _global(name, value)
        held[name] = local, array
        specs.append({"name": name, **spec})
    with _lock:
        _arrays[call] = held
        while len(_arrays) > _MAX_CALLS:
            _arrays.popitem(last=False)
    return specs


def take(call: str, names: list[str], targets: list[tuple[tuple[int, ...], Any, Any]]) -> list[jax.Array]:
    """Return what was kept under these names, as parts of global arrays of these shapes, dtypes and shardings."""
    with _lock:
        held = [_arrays[call].pop(name) for name in names]
        if not _arrays[call]:
            del _arrays[call]
    return [assemble(array, *target) if local else array for (local, array), target in zip(held, targets, strict=True)]


def unwrap(row: jax.Array, described: dict[str, Any]) -> jax.Array:
    """Return an array that is not on all devices of the call, from the rows of `array_moves.py` in which it came."""
    shape = tuple(described["shape"])
    sharding = shardings.read(described["sharding"], {device.id: device for device in row.sharding.mesh.devices.flat})
    by_device = {shard.device: shard.data for shard in row.addressable_shards}
    devices = sharding.addressable_devices_indices_map(shape)
    if isinstance(row.dtype, np.dtypes.StringDType):
        shards = [jax.device_put(np.asarray(by_device[device])[0], device) for device in devices]
    else:
        shards = [by_device[device][0] for device in devices]
    array = jax.make_array_from_single_device_arrays(shape, sharding, shards, dtype=row.dtype)
    return jax.random.wrap_key_data(array, impl=described["keys"]) if described["keys"] else array


def free(array: jax.Array) -> jax.Array:
    """Return this host's own copy of a replicated array, committed to no device: any shard can be computed with it."""
    copy = array.addressable_shards[0].data
    if jax.dtypes.issubdtype(copy.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(free(jax.random.key_data(copy)), impl=str(jax.random.key_impl(copy)))
    if isinstance(copy.dtype, np.dtypes.StringDType):
        return copy
    # Without this JAX would narrow 64-bit data of a notebook that works with 64 bits.
    with jax.enable_x64(True):
        return jax.device_put(np.asarray(copy))


def assemble(local: Any, shape: tuple[int, ...], dtype: Any, sharding: Any) -> jax.Array:
    """Return a global array whose shards on this host, in order along the first axis, make up `local`.

    Raises:
      OverflowError: The dtype cannot hold what is in it.
    """
    if isinstance(local, np.ndarray) and local.dtype != dtype:
        if is_wide(local):
            raise OverflowError(f"An array holds values of {local.dtype} that {dtype} cannot hold.")
        local = local.astype(dtype)
    indices = sharding.addressable_devices_indices_map(shape)
    first = min((index[0].start or 0 for index in indices.values() if index), default=0)
    shards = []
    for device, index in indices.items():
        rows = index[0] if index else slice(None)
        start = (rows.start or 0) - first
        stop = (shape[0] if rows.stop is None else rows.stop) - first
        # Without this JAX would narrow 64-bit data for a notebook that works with 64 bits.
        with jax.enable_x64(True):
            shards.append(jax.device_put(local[(slice(start, stop), *index[1:])], device))
    return jax.make_array_from_single_device_arrays(shape, sharding, shards)


def rows(shape: tuple[int, ...], sharding: Any) -> int:
    """Return how many rows of such a global array are on this host."""
    indices = sharding.addressable_devices_indices_map(shape).values()
    starts = [index[0].start or 0 for index in indices]
    stops = [shape[0] if index[0].stop is None else index[0].stop for index in indices]
    return int(max(stops) - min(starts))


def is_array(value: Any) -> bool:
    """Return whether a variable, or what is inside of one, goes back as an array."""
    return isinstance(value, jax.Array) or (isinstance(value, np.ndarray) and _has_dtype(value))


def _has_dtype(array: Any) -> bool:
    """Return whether JAX has arrays of this kind; text becomes one that it has."""
    if isinstance(array.dtype, np.dtypes.StringDType) or array.dtype.kind == "U":
        return bool(array.ndim)
    try:
        with jax.enable_x64(True):
            jax.eval_shape(lambda: jax.numpy.zeros((), array.dtype))
    except TypeError:
        return False
    return True


def _local(name: str, value: Any) -> tuple[dict[str, Any], Any]:
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        keys = value.reshape(1) if value.ndim == 0 else value
        return _described(keys, keys=str(jax.random.key_impl(keys))), keys
    array = np.atleast_1d(np.asarray(value))
    if array.dtype.kind == "U":
        array = array.astype(np.dtypes.StringDType())
    if array.dtype.kind in "OSmM":
        raise TypeError(f"{name} is an array of {array.dtype}, which JAX does not have.")
    described = {**_described(array), "wide": is_wide(array), "weak": shardings.is_weak(value)}
    if isinstance(value, (int, float, np.integer, np.floating)):
        described["number"] = value if isinstance(value, (int, float)) else value.item()
    return described, array


def is_wide(array: np.ndarray) -> bool:
    """Return whether 32 bits cannot hold what is in an array of 64 bits; the rounding of fractions does not count."""
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
        bounds = np.iinfo(np.int32 if array.dtype.kind == "i" else np.uint32)
        return bool(array.min() < bounds.min or array.max() > bounds.max)
    if array.dtype in (np.float64, np.complex128):
        with np.errstate(over="ignore"):
            narrow = array.astype(np.float32 if array.dtype == np.float64 else np.complex64)
        return bool((np.isfinite(array) & ~np.isfinite(narrow)).any())
    return False


def _described(array: Any, *, keys: str = "", sharding: Any = None) -> dict[str, Any]:
    dtype = "string" if isinstance(array.dtype, np.dtypes.StringDType) else str(array.dtype)
    weak = not isinstance(array, np.ndarray) and shardings.is_weak(array)
    return {
        "local": not sharding,
        "shape": list(array.shape),
        "dtype": dtype,
        "weak": weak,
        "keys": keys,
        "sharding": sharding,
    }


def _global(name: str, value: Any) -> tuple[dict[str, Any], Any]:
    if not isinstance(value, jax.Array):
        raise TypeError(f"{name} is a {type(value).__name__}, not an array.")
    try:
        described = shardings.write(value.sharding, lambda device: device.id)
    except TypeError as error:
        raise TypeError(f"{name} {error}.") from None
    is_key = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    return _described(value, keys=str(jax.random.key_impl(value)) if is_key else "", sharding=described), value
