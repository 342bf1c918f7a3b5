"""Find the user's arrays that a switch of devices affects.

JAX does not invalidate anything when a client ends: the variables stay, and the next use of one fails deep inside JAX.
So connecting and disconnecting search the user's namespace and report the affected arrays beforehand.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_NEVER_ARRAYS = (str, bytes, int, float, complex, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


@dataclass(frozen=True)
class NamedArray:
    """An array, and the variable that holds it.

    Attributes:
      name: The variable's name and the path inside it, e.g. ``params['w']``.
      shape: Its shape.
      dtype: Its dtype's name.
      nbytes: Bytes of the whole array, without its replicas.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{','.join(map(str, self.shape))}]"


def arrays_of(clients: Collection[Any], namespace: Mapping[str, Any], *, uncommitted: bool = False) -> list[NamedArray]:
    """Return the arrays in `namespace` that are on devices of `clients`.

    Args:
      clients: JAX clients, compared by identity.
      namespace: Variables by name; each value is searched as a pytree.
      uncommitted: Only arrays that were not placed on a device explicitly.
    """
    ids = {id(client) for client in clients}
    return [named for named, leaf in _arrays(namespace) if _is_on(leaf, ids) and not (uncommitted and leaf.committed)]


def arrays_elsewhere(client: Any, namespace: Mapping[str, Any]) -> list[NamedArray]:
    """Return the arrays in `namespace` that are on no device of `client`."""
    import jax

    return [
        named
        for named, leaf in _arrays(namespace)
        if not isinstance(leaf, jax.core.Tracer) and not leaf.is_deleted() and not _is_on(leaf, {id(client)})
    ]


def _arrays(namespace: Mapping[str, Any]) -> Iterator[tuple[NamedArray, Any]]:
    import jax

    for name, value in list(namespace.items()):
        if isinstance(value, _NEVER_ARRAYS):
            continue
        try:
            leaves = jax.tree_util.tree_flatten_with_path(value)[0]
        except Exception:
            # A user's own pytree class may raise when flattened; that must not fail a disconnect.
            leaves = [((), value)]
        for path, leaf in leaves:
            if isinstance(leaf, jax.Array):
                where = f"{name}{jax.tree_util.keystr(path)}"
                # Not leaf.nbytes, which typed PRNG keys do not have.
                nbytes = int(leaf.size * leaf.dtype.itemsize)
                yield NamedArray(where, tuple(leaf.shape), str(leaf.dtype), nbytes), leaf


def _is_on(array: Any, ids: set[int]) -> bool:
    import jax

    if isinstance(array, jax.core.Tracer) or array.is_deleted():
        return False
    return any(id(device.client) in ids for device in array.sharding.device_set)
