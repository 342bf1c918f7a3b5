"""Values of arrays once they exist: JAX arrays, or strings; and taking either apart and putting it together.

A *shard* is the part on one device: a single-device JAX array, or a tuple of byte strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pathways_jupyter.local.pathways.ifrt import dtypes, messages
from pathways_jupyter.local.pathways.ifrt.shardings import Sharding, Shardings

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Type, shape and sharding of an array, known before it exists.

    Attributes:
      kind: The element type, see :mod:`dtypes`.
      shape: The global shape.
    """

    kind: int
    shape: tuple[int, ...]
    sharding: Sharding

    @property
    def is_strings(self) -> bool:
        """Return whether the elements are strings, which no JAX array can hold."""
        return self.kind == dtypes.STRING


@dataclass(frozen=True, slots=True)
class Strings:
    """An array of strings: for each of its devices the elements in row-major order, UTF-8."""

    shards: tuple[tuple[bytes, ...], ...]


def read_spec(message: Any, shardings: Shardings) -> ArraySpec:
    """Read a type, a shape and a sharding from a message about an array."""
    return ArraySpec(message.dtype.kind, tuple(message.shape.dims), shardings.read(message.sharding))


@lru_cache(maxsize=4096)
def aval(kind: int, shape: tuple[int, ...]) -> Any:
    """Return JAX's abstract value of a numeric array, or of the empty array that stands for a token."""
    from jax._src import core

    if kind == dtypes.TOKEN:
        return core.get_token_aval()
    return core.ShapedArray(shape, dtypes.to_numpy(kind))


def join(spec: ArraySpec, shards: Sequence[Any]) -> jax.Array | Strings:
    """Join `shards`, one for each device of its sharding in that order, into an array."""
    from jax._src.lib import xla_client as xc

    if spec.is_strings:
        return Strings(tuple(shards))
    # Checking each shard's shape again is left out: the client's IFRT has done so.
    return xc.ArrayImpl(aval(spec.kind, spec.shape), spec.sharding.jax, list(shards), True, True)


def split(value: Any) -> Sequence[Any]:
    """Return the shards of a value, by device."""
    return value.shards if isinstance(value, Strings) else value._arrays


def from_host(spec: ArraySpec, shards: Sequence[Any], devices: Sequence[jax.Device]) -> jax.Array | Strings:
    """Return the array whose shards are these numpy arrays, or tuples of byte strings.

    A numpy array that is aligned well is not copied: it becomes the device's memory.
    """
    from jax._src.lib import xla_client as xc

    if spec.is_strings:
        return Strings(tuple(shards))
    return xc.batched_device_put(aval(spec.kind, spec.shape), spec.sharding.jax, list(shards), list(devices), True)


def to_host(value: Any, strides: tuple[int, ...] | None) -> memoryview:
    """Return the bytes of a value on one device, or replicated over several; without a copy where the layout allows it.

    Args:
      value: Ready already.
      strides: The layout that the client wants, in bytes for each axis; None for row-major.
    """
    if isinstance(value, Strings):
        return memoryview(messages.StringArrayContents(strings=value.shards[0]).SerializeToString())
    array = np.asarray(value)
    if strides is not None and array.size and array.strides != strides:
        array = _laid_out(array, strides)
    elif strides is None:
        array = np.ascontiguousarray(array)
    return _bytes_of(array)


def read_host(raw: memoryview, spec_kind: int, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Any:
    """Return the client's bytes as a numpy array, or as a tuple of byte strings."""
    if spec_kind == dtypes.STRING:
        return tuple(messages.StringArrayContents.FromString(raw).strings)
    dtype = dtypes.to_numpy(spec_kind)
    if 0 in shape:
        return np.zeros(shape, dtype)
    # Not as_strided: that cannot take all of ml_dtypes' types.
    return np.ndarray(shape, dtype, buffer=raw, strides=strides)


def _laid_out(array: np.ndarray, strides: tuple[int, ...]) -> np.ndarray:
    """Return the array's bytes with these strides."""
    span = sum((axis - 1) * step for axis, step in zip(array.shape, strides, strict=True)) // array.itemsize + 1
    target = np.zeros(span, array.dtype)
    np.ndarray(array.shape, array.dtype, buffer=_bytes_of(target), strides=strides)[...] = array
    return target


def _bytes_of(array: np.ndarray) -> memoryview:
    if array.size == 0:
        return memoryview(b"")
    # Not memoryview.cast: numpy's extension types (bfloat16, float8) have no buffer format.
    return array.reshape(-1).view(np.uint8).data
