"""Which of the user's arrays a switch of devices concerns.

JAX frees nothing when a client goes: the variables stay, and the next use of one fails deep inside. So connecting and
disconnecting look through the user's namespace and name them beforehand.
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
      name: Where it is: the variable's name and the path inside it, e.g. ``params['w']``.
      shape: Its shape.
      dtype: Its dtype's name.
      nbytes: Bytes of the whole array, its replicas not counted.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{','.join(map(str, self.shape))}]"


def arrays_of(clients: Collection[Any], namespace: Mapping[str, Any], *, uncommitted: bool = False) -> list[NamedArray]:
    """Arrays in `namespace` that live on devices of one of `clients`.

    Args:
      clients: JAX clients, compared by identity.
      namespace: Variables by name; each value is looked into as a pytree.
      uncommitted: Only arrays that nobody placed on a device on purpose.
    """
    ids = {id(client) for client in clients}
    return [named for named, leaf in _arrays(namespace) if _is_on(leaf, ids) and not (uncommitted and leaf.committed)]


def arrays_elsewhere(client: Any, namespace: Mapping[str, Any]) -> list[NamedArray]:
    """Arrays in `namespace` that live on no device of `client`."""
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
        for path, leaf in _leaves(value):
            if isinstance(leaf, jax.Array):
                where = f"{name}{jax.tree_util.keystr(path)}"
                yield NamedArray(where, tuple(leaf.shape), str(leaf.dtype), _nbytes(leaf)), leaf


def _leaves(value: Any) -> list[tuple[Any, Any]]:
    import jax

    try:
        return list(jax.tree_util.tree_flatten_with_path(value)[0])
    except Exception:
        # A user's own pytree class may refuse to be flattened; that is not worth failing a disconnect for.
        return [((), value)]


def _is_on(array: Any, ids: set[int]) -> bool:
    import jax

    if isinstance(array, jax.core.Tracer) or array.is_deleted():
        return False
    return any(id(device.client) in ids for device in array.sharding.device_set)


def _nbytes(array: Any) -> int:
    # Typed PRNG keys have no nbytes of their own.
    return int(array.size * array.dtype.itemsize)
