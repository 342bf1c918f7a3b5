"""Arrays that TPU hosts write to a bucket and read from there, bit by bit, without this process.

An array of a type that hosts cannot write travels as one of its bits: a PRNG key as its numbers, ``float8`` as
``uint8``. Devices are named by their positions among the session's, so that other slices of the same kind serve.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

_TIMEOUT = datetime.timedelta(hours=1)
_MOST_DIMENSIONS = 32
_NARROW = {"bool": "uint8", "int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8"}
"""Types that are written as wider ones with the same values."""
_MOST_PIECES, _LEAST_PIECE_BYTES = 8, 64 << 20
"""Arrays are written and read in so many pieces at most, to see how far it is; each costs a round trip."""

Done = Callable[[int, int], None]
"""Called with the bytes that are done, and with all."""


def check(array: Any, devices: Sequence[Any]) -> str:
    """Return why `array` cannot be saved from `devices`, as the end of a sentence; empty if it can be."""
    import jax

    if isinstance(array, jax.core.Tracer):
        return "is a tracer"
    if array.is_deleted():
        return "has no data any more"
    if not set(array.sharding.device_set) <= set(devices):
        return "is not on the session's TPUs"
    try:
        _write_sharding(array.sharding, devices)
        _plain_form(_type_of(array))
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def describe(array: Any, devices: Sequence[Any]) -> dict[str, Any]:
    """Return as JSON values what :func:`read` needs to know of `array`."""
    return {
        "shape": list(array.shape),
        "dtype": _type_of(array),
        "sharding": _write_sharding(array.sharding, devices),
        "committed": bool(array.committed),
    }


def write(location: str, arrays: Sequence[Any], done: Done) -> None:
    """Have the hosts write each array to `location`, under its index; empty arrays have nothing to write.

    Args:
      done: Called first, and after each piece.

    Raises:
      JaxRuntimeError: The hosts or the proxy failed, or do not offer it.
    """
    import jax
    from orbax.checkpoint._src.serialization import cloud_pathways_helper

    groups: dict[tuple[Any, ...], dict[int, Any]] = {}
    for number, array in enumerate(arrays):
        if array.size:
            to_plain = _plain_form(_type_of(array))[0]
            plain = jax.jit(to_plain, out_shardings=array.sharding)(array) if to_plain else array
            groups.setdefault(_ordered_devices(array.sharding), {})[number] = plain
    # All at once: the hosts go on while this process waits for the first.
    written = [
        (cloud_pathways_helper.write_arrays(location, list(map(str, piece)), list(piece.values()), _TIMEOUT), nbytes)
        for piece, nbytes in _pieces(groups.values())
    ]
    _wait(written, done)


def _pieces(groups: Iterable[Mapping[int, Any]]) -> Iterator[tuple[dict[int, Any], int]]:
    """Yield parts of each group, with their bytes."""
    groups = list(groups)
    sizes = [
        {number: math.prod(each.shape) * each.dtype.itemsize for number, each in group.items()} for group in groups
    ]
    most = max(_LEAST_PIECE_BYTES, sum(sum(each.values()) for each in sizes) // _MOST_PIECES)
    for group, nbytes in zip(groups, sizes, strict=True):
        piece: dict[int, Any] = {}
        filled = 0
        for number, array in group.items():
            if piece and filled + nbytes[number] > most:
                yield piece, filled
                piece, filled = {}, 0
            piece[number] = array
            filled += nbytes[number]
        yield piece, filled


def _wait(pieces: Sequence[tuple[Any, int]], done: Done) -> None:
    """Wait for the future of each piece."""
    total, so_far = sum(nbytes for _, nbytes in pieces), 0
    done(so_far, total)
    for future, nbytes in pieces:
        future.result()
        so_far += nbytes
        done(so_far, total)


def read(
    location: str, described: Mapping[int, Mapping[str, Any]], devices: Sequence[Any], done: Done
) -> dict[int, Any]:
    """Have the hosts read what :func:`write` wrote to `location`; return the arrays by their indices there.

    Args:
      described: What each is, by its index.
      done: Called first, and after each piece.

    Raises:
      LookupError, TypeError, ValueError: `described` is not what :func:`describe` returned, or names more devices.
      JaxRuntimeError: The hosts or the proxy failed.
    """
    import jax
    import numpy as np
    from orbax.checkpoint._src.serialization import cloud_pathways_helper

    made: dict[int, Any] = {}
    groups: dict[tuple[Any, ...], dict[int, Any]] = {}
    forms, shardings = {}, {}
    for number, each in described.items():
        shape, dtype = _shape(each["shape"]), str(each["dtype"])
        sharding = _read_sharding(each["sharding"], devices)
        to_plain, from_plain = _plain_form(dtype)
        expected = jax.ShapeDtypeStruct(shape, _jax_type(dtype))
        plain = jax.eval_shape(to_plain, expected) if to_plain else expected
        # Checks that the one fits the other.
        sharding.shard_shape(shape)
        forms[number] = from_plain, bool(each["committed"])
        shardings[number] = sharding
        if math.prod(shape):
            groups.setdefault(_ordered_devices(sharding), {})[number] = plain
        else:
            made[number] = jax.device_put(np.zeros(plain.shape, plain.dtype), sharding)
    futures = []
    for piece, nbytes in _pieces(groups.values()):
        arrays, future = cloud_pathways_helper.read_arrays(
            location,
            list(map(str, piece)),
            [each.dtype for each in piece.values()],
            [each.shape for each in piece.values()],
            [shardings[number] for number in piece],
            np.array(_ordered_devices(shardings[next(iter(piece))]), object),
            timeout=_TIMEOUT,
        )
        futures.append((future, nbytes))
        made |= zip(piece, arrays, strict=True)
    _wait(futures, done)
    read = {}
    for number, (from_plain, committed) in forms.items():
        array = made[number]
        if from_plain:
            array = jax.jit(from_plain, out_shardings=shardings[number])(array)
        read[number] = array if committed else _uncommitted(array)
    found: dict[int, Any] = jax.block_until_ready(read)
    return found


def _type_of(array: Any) -> str:
    """Return the name of the array's type; ``key:IMPLEMENTATION`` for PRNG keys."""
    import jax

    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return f"key:{jax.random.key_impl(array)}"
    return str(array.dtype)


def _jax_type(dtype: str) -> Any:
    import jax
    import numpy as np

    if dtype.startswith("key:"):
        return jax.eval_shape(lambda: jax.random.key(0, impl=dtype.removeprefix("key:"))).dtype
    found = np.dtype(dtype)
    if jax.dtypes.canonicalize_dtype(found) != found:
        raise ValueError(f'arrays of {dtype} need jax.config.update("jax_enable_x64", True)')
    return found


_Convert = Callable[[Any], Any] | None


def _plain_form(dtype: str) -> tuple[_Convert, _Convert]:
    """Return what makes an array that hosts write of one of this type, and what makes it one again; None: it is one.

    Raises:
      TypeError, ValueError: There is no such array.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    if dtype.startswith("key:"):
        return jax.random.key_data, lambda data: jax.random.wrap_key_data(data, impl=dtype.removeprefix("key:"))
    if dtype in _NARROW:
        return lambda array: array.astype(_NARROW[dtype]), lambda array: array.astype(dtype)
    if dtype in ("complex64", "complex128"):
        return (
            lambda array: jnp.stack([array.real, array.imag], -1),
            lambda array: jax.lax.complex(array[..., 0], array[..., 1]),
        )
    found = np.dtype(dtype)
    if dtype.startswith("float8") or dtype == "float16":
        bits = f"uint{8 * found.itemsize}"
        return (
            lambda array: jax.lax.bitcast_convert_type(array, bits),
            lambda array: jax.lax.bitcast_convert_type(array, found),
        )
    if dtype.startswith("float4"):
        return (
            lambda array: jax.lax.bitcast_convert_type(array, "uint4").astype("uint8"),
            lambda array: jax.lax.bitcast_convert_type(array.astype("uint4"), found),
        )
    if dtype != "bfloat16" and found.kind not in "iuf":
        raise TypeError(f"is an array of {dtype}, which hosts cannot write")
    return None, None


def _uncommitted(array: Any) -> Any:
    """Return `array` as one that JAX may move to other devices."""
    import jax

    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_uncommitted(jax.random.key_data(array)), impl=jax.random.key_impl(array))
    shards = [each.data for each in array.addressable_shards]
    return type(array)(array.aval, array.sharding, shards, committed=False)


def _ordered_devices(sharding: Any) -> tuple[Any, ...]:
    import jax

    return tuple(
        sharding.mesh.devices.flat if isinstance(sharding, jax.sharding.NamedSharding) else sharding.device_set
    )


def _write_sharding(sharding: Any, devices: Sequence[Any]) -> dict[str, Any]:
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


def _read_sharding(written: Mapping[str, Any], devices: Sequence[Any]) -> Any:
    import jax
    import numpy as np

    if any(not isinstance(each, int) or each < 0 for each in written["devices"]):
        raise TypeError("devices are named by their positions")
    if max(written["devices"]) >= len(devices):
        raise LookupError(
            f"it was saved from at least {max(written['devices']) + 1} chips, and here are {len(devices)}"
        )
    found = [devices[each] for each in written["devices"]]
    if "axes" not in written:
        return jax.sharding.SingleDeviceSharding(found[0], memory_kind=written["memory"])
    types = tuple(jax.sharding.AxisType[each] for each in written["types"])
    mesh = jax.sharding.Mesh(
        np.array(found, object).reshape(written["shape"]), tuple(written["axes"]), axis_types=types
    )
    spec = jax.sharding.PartitionSpec(*(tuple(each) if isinstance(each, list) else each for each in written["spec"]))
    return jax.sharding.NamedSharding(mesh, spec, memory_kind=written["memory"])


def _shape(written: Any) -> tuple[int, ...]:
    shape = tuple(written)
    if len(shape) > _MOST_DIMENSIONS or any(type(each) is not int or not 0 <= each < 1 << 48 for each in shape):
        raise ValueError("no shape")
    return shape
