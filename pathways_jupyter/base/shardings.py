"""Shardings of arrays as JSON values, with a number for each device, and what else JAX knows of an array's type.

Also run on TPU hosts without this package, so it imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def write(sharding: Any, number: Callable[[Any], int]) -> dict[str, Any]:
    """Return `sharding` as JSON values.

    Args:
      number: Returns the number of a device.

    Raises:
      TypeError: It is neither a NamedSharding of a mesh with devices nor on a single device; the message is the end of
        a sentence about its array.
    """
    import jax

    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        (device,) = sharding.device_set
        return {"devices": [number(device)], "memory": sharding.memory_kind}
    if not isinstance(sharding, jax.sharding.NamedSharding) or not isinstance(sharding.mesh, jax.sharding.Mesh):
        raise TypeError(f"has a {type(sharding).__name__}; give it a NamedSharding with jax.device_put")
    mesh, spec = sharding.mesh, sharding.spec
    if spec.unreduced or spec.reduced:
        raise TypeError(f"has the sharding {spec}; sum it up first")
    return {
        "devices": [number(device) for device in mesh.devices.flat],
        "shape": list(mesh.devices.shape),
        "axes": list(mesh.axis_names),
        "types": [each.name for each in mesh.axis_types],
        "spec": [list(each) if isinstance(each, tuple) else each for each in spec],
        "memory": sharding.memory_kind,
    }


def read(written: Mapping[str, Any], devices: Mapping[int, Any]) -> Any:
    """Return the sharding that :func:`write` described.

    Args:
      devices: Those that it may name, by their numbers.

    Raises:
      LookupError, TypeError, ValueError: It is not one.
    """
    import jax
    import numpy as np

    chosen = [devices[each] for each in written["devices"]]
    if not chosen or len(set(chosen)) < len(chosen):
        # JAX would end the process.
        raise ValueError("a sharding without devices, or with one of them twice")
    if not isinstance(written["memory"], (str, type(None))):
        raise TypeError("no kind of memory")
    if "axes" not in written:
        return jax.sharding.SingleDeviceSharding(chosen[0], memory_kind=written["memory"])
    types = tuple(jax.sharding.AxisType[each] for each in written["types"])
    grid = np.array(chosen, object).reshape(written["shape"])
    mesh = jax.sharding.Mesh(grid, tuple(written["axes"]), axis_types=types)
    spec = jax.sharding.PartitionSpec(*(tuple(each) if isinstance(each, list) else each for each in written["spec"]))
    try:
        return jax.sharding.NamedSharding(mesh, spec, memory_kind=written["memory"])
    except Exception as error:
        # JAX has a class of its own for an axis that is used twice.
        raise ValueError(f"no sharding: {error}") from error


def is_weak(value: Any) -> bool:
    """Return whether the type of `value` gives way to others in JAX's computations, as a number of Python does."""
    weak = getattr(value, "weak_type", None)
    return type(value) in (int, float, complex) if weak is None else bool(weak)


def typed(array: Any, *, weak_type: bool, committed: bool) -> Any:
    """Return `array`, which is not copied, with a type that is weak or not, and committed to its devices or not."""
    import jax

    if (array.aval.weak_type, array.committed) == (weak_type, committed):
        return array
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        # Their types are never weak.
        numbers = typed(jax.random.key_data(array), weak_type=False, committed=committed)
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(array))
    shards = [each.data for each in array.addressable_shards]
    return type(array)(array.aval.update(weak_type=weak_type), array.sharding, shards, committed=committed)
