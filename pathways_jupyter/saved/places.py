"""The places that hold arrays: variables, containers, attributes, and what functions have closed over.

What can be changed is changed in place, so that it stays the object that it was. Tuples and shardings are made again,
once each, and put where the old ones were.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import sys
import traceback
import types
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from pathways_jupyter.base.errors import chain
from pathways_jupyter.base.text import array_type
from pathways_jupyter.saved.values import UnsavableError

_LEAVES = (str, bytes, int, float, complex, type(None), type, types.ModuleType, types.BuiltinFunctionType)
_OTHERS = frozenset(
    {"pathways_jupyter", "IPython", "ipykernel", "traitlets", "jaxlib", "threading", "logging", "asyncio", "ast"}
)
"""Packages whose objects are no user's."""


def replace(namespace: MutableMapping[str, Any], change: Callable[[Any], Any]) -> None:
    """Put ``change(value)`` where `namespace` reaches a value that JAX has placed on devices.

    Args:
      change: Gets arrays, meshes, shardings and devices; returns the value itself to leave it.

    Raises:
      UnsavableError: Variables are too deep.
    """
    try:
        _Walk(change).items(namespace)
    except RecursionError:
        raise UnsavableError("Variables are too deep to be searched for arrays.") from None


def arrays_in(namespace: MutableMapping[str, Any]) -> list[Any]:
    """Return the arrays that :func:`replace` finds, each once."""
    found: list[Any] = []
    replace(namespace, _noting(found))
    return found


def _noting(found: list[Any]) -> Callable[[Any], Any]:
    """Return what adds an array to `found`, and changes nothing."""
    import jax

    def note(value: Any) -> Any:
        if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
            found.append(value)
        return value

    return note


def unreached(live: Iterable[Any], reached: Iterable[Any]) -> list[str]:
    """Describe the arrays of `live` that are not among `reached`, with what holds each as far as that is known.

    Those that only the last error's traceback holds, for a debugger, are not among them: no program computes with them.
    """
    left = _without([each for each in live if not each.is_deleted()], reached)
    if left:
        left = _without(left, _in_last_error())
    return [f"{array_type(each)}, held by {_holder(each)}" for each in left]


def _without(arrays: list[Any], known: Iterable[Any]) -> list[Any]:
    ids = {id(each) for array in known for each in (array, getattr(array, "_base_array", None))}
    return [each for each in arrays if id(each) not in ids]


def _in_last_error() -> list[Any]:
    """Return the arrays that the frames of the error that was shown last reach."""
    found: list[Any] = []
    # One walk: the frames of an Interrupt may reach all of a large program, and each of them the same.
    walk = _Walk(_noting(found))
    for error in chain(getattr(sys, "last_value", None)):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            with contextlib.suppress(RecursionError):
                walk.items(dict(frame.f_locals))
    return found


def _holder(array: Any) -> str:
    kinds = (types.GeneratorType, types.CoroutineType, types.FunctionType)
    referrers = gc.get_referrers(array)
    cells = [each for each in referrers if isinstance(each, types.CellType)]
    for each in [*referrers, *gc.get_referrers(*cells)]:
        if isinstance(each, kinds):
            return f"{type(each).__name__} {each.__qualname__}"
        if isinstance(each, types.FrameType):
            return f"a call of {each.f_code.co_qualname}"
    return "something that no variable reaches"


class _Walk:
    def __init__(self, change: Callable[[Any], Any]) -> None:
        import jax

        self._change = change
        self._placed = (jax.Array, jax.Device, jax.sharding.Mesh, jax.sharding.Sharding)
        # The old values too, so that no other gets the address of one.
        self._done: dict[int, tuple[Any, Any]] = {}

    def items(self, mapping: MutableMapping[Any, Any]) -> None:
        for key, value in list(mapping.items()):
            if (new := self._value(value)) is not value:
                mapping[key] = new

    def _value(self, value: Any) -> Any:
        if isinstance(value, _LEAVES):
            return value
        if id(value) in self._done:
            return self._done[id(value)][1]
        self._done[id(value)] = value, value
        new = self._change(value) if isinstance(value, self._placed) else self._inside(value)
        self._done[id(value)] = value, new
        return new

    def _inside(self, value: Any) -> Any:
        """Change what is in `value`; return another object only for one that cannot be changed."""
        if isinstance(value, tuple):
            children = [self._value(each) for each in value]
            if any(new is not old for new, old in zip(children, value, strict=True)):
                return tuple.__new__(type(value), children)
            return value
        if isinstance(value, dict):
            for key, each in list(dict.items(value)):
                if (new := self._value(each)) is not each:
                    dict.__setitem__(value, key, new)
        elif isinstance(value, (list, collections.deque)):
            for number, each in enumerate(list(value)):
                if (new := self._value(each)) is not each:
                    value[number] = new
        elif isinstance(value, (set, frozenset)):
            for each in list(value):
                self._value(each)
        elif isinstance(value, functools.partial):
            parts = tuple(map(self._value, (value.func, value.args, value.keywords)))
            if parts[0] is not value.func or parts[1] is not value.args:
                value.__setstate__((*parts, vars(value)))  # type: ignore[attr-defined]
        elif isinstance(value, types.MethodType):
            self._value(value.__self__)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif type(value).__module__.startswith("jax"):
            # A jitted function.
            self._value(getattr(value, "__wrapped__", None))
        if type(value).__module__.partition(".")[0] not in _OTHERS:
            self._attributes(value)
        return value

    def _function(self, function: Any) -> None:
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                # Not set yet.
                continue
            if (new := self._value(content)) is not content:
                cell.cell_contents = new
        if (new := self._value(function.__defaults__)) is not function.__defaults__:
            function.__defaults__ = new
        self._value(function.__kwdefaults__)

    def _attributes(self, value: Any) -> None:
        # Neither properties nor __setattr__ of the class: a frozen dataclass is changed too.
        if isinstance(attributes := getattr(value, "__dict__", None), dict):
            self.items(attributes)
        for kind in type(value).__mro__:
            for slot in vars(kind).values():
                if isinstance(slot, types.MemberDescriptorType) and kind.__module__ != "builtins":
                    try:
                        content = slot.__get__(value)
                    except AttributeError:
                        continue
                    if (new := self._value(content)) is not content:
                        slot.__set__(value, new)
