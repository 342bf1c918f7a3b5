"""Find the user's arrays that a switch of devices affects, and count them.

JAX does not invalidate anything when a client ends: the variables stay, and the next use of one fails deep inside JAX.
So connecting and disconnecting report the affected arrays beforehand, by the variables and other places that hold them.

An array counts once, however many variables hold it, and also where none does: :func:`live` has them all.
"""

from __future__ import annotations

import contextlib
import re
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base.text import array_type, count, some
from pathways_jupyter.saved import on_devices
from pathways_jupyter.saved.heap import objects_of
from pathways_jupyter.saved.paths import names
from pathways_jupyter.session.kernel import device_puts, process

DELETED = "Array has been deleted"
"""Contained in JAX's error about an array that a program, the user or the end of its proxy has deleted."""

_ended: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Arrays that ended with their proxy, by their ids: a sharding that a variable holds becomes that of the next proxy."""
_MANY = 8
_FEW = 2
_VARIABLE = re.compile(r"\w*")


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


def on_client(client: Any) -> list[Any]:
    """Return the arrays on the devices of `client`, also those inside others; callable from any thread."""
    return device_puts.without_own([each for each in client.live_arrays() if not each.is_deleted()])


def live(client: Any) -> list[Any]:
    """Return the arrays on the devices of `client`, each once; callable from any thread.

    The parts of an array, which JAX keeps as arrays of their own once the user has looked at them, are part of it.
    """
    arrays = on_client(client)
    parts = on_devices.inner(arrays)
    return [each for each in arrays if id(each) not in parts]


def all_of(client: Any, namespace: Mapping[str, Any]) -> tuple[NamedArray, ...]:
    """Return the :func:`live` arrays of `client` with their names, the notebook's outputs and those without one last.

    Args:
      namespace: Variables by name, which are preferred; the notebook's outputs, modules and classes name others.
    """
    return tuple(
        sorted(
            _named(live(client), namespace), key=lambda each: (not each.name, each.name.startswith("Out["), each.name)
        )
    )


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


def end(client: Any) -> None:
    """Delete every array on devices of `client`, whose proxy is gone or is going."""
    for array in client.live_arrays():
        _ended[id(array)] = array
        # It may raise because the connection is closed; the array is deleted anyway.
        with contextlib.suppress(Exception):
            array.delete()


def uncommitted_arrays(clients: Collection[Any], namespace: Mapping[str, Any]) -> list[NamedArray]:
    """Return the arrays in `namespace` on devices of `clients` that were not placed on a device explicitly.

    Args:
      clients: JAX clients, compared by identity.
      namespace: As for :func:`all_of`.
    """
    arrays = [
        each for client in clients for each in client.live_arrays() if not each.is_deleted() and not each.committed
    ]
    return _in_variables(arrays, namespace)


def arrays_elsewhere(client: Any, namespace: Mapping[str, Any]) -> list[NamedArray]:
    """Return the arrays in `namespace` that are on no device of `client`."""
    arrays = [each for each in _arrays() if not each.is_deleted() and client not in _clients(each)]
    return _in_variables(arrays, namespace)


def lost_arrays(namespace: Mapping[str, Any], error: str) -> list[NamedArray]:
    """Return the arrays in `namespace` that were on proxies which are gone, as far as they explain JAX's `error`.

    An array that a program or the user has deleted is none of them.
    """
    arrays = _in_variables(list(_ended.values()), namespace)
    if DELETED not in error:
        return arrays
    # JAX says the type of the one, with the axes of a mesh that its dimensions are split over, and the hosts' memory.
    said = re.sub(r"@[^,\]]*|<\w+>", "", error)
    return [each for each in arrays if f"shape={each.type}" in said]


def _arrays() -> list[Any]:
    """Return all arrays of this process, on whatever devices, deleted ones included."""
    import jax

    return [each for each in objects_of((jax.Array,)) if hasattr(each, "_npy_value")]


def _clients(array: Any) -> set[Any]:
    return {device.client for device in array.sharding.device_set}


def _in_variables(arrays: Sequence[Any], namespace: Mapping[str, Any]) -> list[NamedArray]:
    return [each for each in _named(arrays, namespace) if each.variable in namespace]


def _named(arrays: Sequence[Any], namespace: Mapping[str, Any]) -> list[NamedArray]:
    import jax

    if not arrays:
        return []
    outputs = {f"Out[{number}]": value for number, value in process.outputs().items()}
    found_names = names(arrays, (_own_first(namespace), outputs, namespace))
    # To its user, the array inside a key of jax.random is the key.
    keys = {id(each._base_array): each for each in objects_of((jax.Array,)) if hasattr(each, "_base_array")}
    named = []
    for array in arrays:
        seen, name = keys.get(id(array), array), found_names.get(id(array), "").removesuffix("._base_array")
        named.append(NamedArray(name, tuple(seen.shape), str(seen.dtype), size_of(array)))
    return named


def _own_first(namespace: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in namespace.items() if not name.startswith("_")}


def size_of(array: Any) -> int:
    """Return the bytes of a whole array, without its replicas."""
    # Not array.nbytes, which typed PRNG keys do not have.
    return int(array.size * array.dtype.itemsize)
