"""Find the user's arrays that a switch of devices affects, and count them.

JAX does not invalidate anything when a client ends: the variables stay, and the next use of one fails deep inside JAX.
So connecting and disconnecting search the user's namespace and report the affected arrays beforehand.

An array counts once, however many variables hold it, and also where none does: :func:`live` has them all.
"""

from __future__ import annotations

import re
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base.text import array_type, count, some
from pathways_jupyter.session.kernel import device_puts, process

DELETED = "Array has been deleted"
"""Contained in JAX's error about an array that a program, the user or the end of its proxy has deleted."""

_MANY = 8
_FEW = 2
_VARIABLE = re.compile(r"\w*")
_NEVER_ARRAYS = (str, bytes, int, float, complex, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


@dataclass(frozen=True)
class NamedArray:
    """An array, and the first variable that holds it.

    Attributes:
      name: The variable's name and the path inside it, e.g. ``params['w']``; empty if none holds it.
      shape: Its shape.
      dtype: Its dtype's name.
      nbytes: Bytes of the whole array, without its replicas.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.name or 'no variable'}: {self.type}"

    @property
    def type(self) -> str:
        """Its dtype and shape, as JAX writes them: ``float32[8,4]``."""
        return array_type(self)

    @property
    def variable(self) -> str:
        """The variable's name; empty if none holds the array."""
        return _VARIABLE.match(self.name)[0]  # type: ignore[index]


def live(client: Any) -> list[Any]:
    """Return the arrays on the devices of `client`, each once; callable from any thread.

    The shards of an array, which JAX keeps as arrays of their own once the user has looked at them, are part of it.
    """
    found = [each for each in client.live_arrays() if not each.is_deleted()]
    shards = {id(shard.data) for each in found for shard in vars(each).get("addressable_shards", ())}
    return device_puts.without_own([each for each in found if id(each) not in shards])


def all_of(client: Any, namespace: Mapping[str, Any]) -> tuple[NamedArray, ...]:
    """Return the :func:`live` arrays of `client` with their names: those of `namespace`, then the notebook's outputs'.

    Args:
      namespace: Variables by name; each value is searched as a pytree.
    """
    nameless, named = {id(each): each for each in live(client)}, []
    for variables in (namespace, {"Out": process.outputs()}):
        for name, leaf in _arrays(variables):
            # A key of jax.random is an array that has another one inside.
            if any(nameless.pop(id(each), None) is not None for each in (leaf, getattr(leaf, "_base_array", None))):
                named.append(name)
    return (*named, *(_named("", each) for each in nameless.values()))


def described(arrays: Sequence[NamedArray]) -> str:
    """Return the arrays' names; many arrays of one variable are counted instead, and so are those of none."""
    by_variable: dict[str, list[NamedArray]] = {}
    for array in arrays:
        by_variable.setdefault(array.variable, []).append(array)
    held_by_none = by_variable.pop("", [])
    shown: list[str] = []
    for variable, group in by_variable.items():
        shown += map(str, group) if len(group) <= _FEW else [f"{variable} ({len(group)} arrays)"]
    if not held_by_none:
        return some(shown, _MANY)
    return some([*shown, f"{count(len(held_by_none), 'array')} that no variable holds"], _MANY)


def uncommitted_arrays(clients: Collection[Any], namespace: Mapping[str, Any]) -> list[NamedArray]:
    """Return the arrays in `namespace` on devices of `clients` that were not placed on a device explicitly.

    Args:
      clients: JAX clients, compared by identity.
      namespace: As for :func:`all_of`.
    """
    ids = {id(client) for client in clients}
    return [named for named, leaf in _arrays(namespace) if _is_on(leaf, ids) and not leaf.committed]


def arrays_elsewhere(client: Any, namespace: Mapping[str, Any]) -> list[NamedArray]:
    """Return the arrays in `namespace` that are on no device of `client`."""
    import jax

    return [
        named
        for named, leaf in _arrays(namespace)
        if not isinstance(leaf, jax.core.Tracer) and not leaf.is_deleted() and not _is_on(leaf, {id(client)})
    ]


def lost_arrays(namespace: Mapping[str, Any], error: str) -> list[NamedArray]:
    """Return the arrays in `namespace` that were on proxies which are gone, as far as they explain JAX's `error`.

    An array that a program or the user has deleted is none of them.
    """
    found = [
        named
        for named, leaf in _arrays(namespace)
        if leaf.is_deleted() and any(device_puts.is_forbidden(device.client) for device in leaf.sharding.device_set)
    ]
    if DELETED not in error:
        return found
    # JAX says the type of the one, with the axes of a mesh that its dimensions are split over.
    said = re.sub(r"@[^,\]]*", "", error)
    return [each for each in found if f"shape={each.type}" in said]


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
                yield _named(f"{name}{jax.tree_util.keystr(path)}", leaf), leaf


def _named(name: str, array: Any) -> NamedArray:
    return NamedArray(name, tuple(array.shape), str(array.dtype), size_of(array))


def size_of(array: Any) -> int:
    """Return the bytes of a whole array, without its replicas."""
    # Not array.nbytes, which typed PRNG keys do not have.
    return int(array.size * array.dtype.itemsize)


def _is_on(array: Any, ids: set[int]) -> bool:
    import jax

    if isinstance(array, jax.core.Tracer) or array.is_deleted():
        return False
    return any(id(device.client) in ids for device in array.sharding.device_set)
