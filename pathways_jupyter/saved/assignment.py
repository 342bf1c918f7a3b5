"""Put loaded values into the objects that a notebook has of the same names, where their leaves agree.

A save has a pytree with a class of its own, such as a Flax module, a dataclass or optax's state, as its leaves by their
paths: nothing that is read there is code. The class is in the notebook, if its cells were run again. An object that can
be changed stays the object that it is, since an optimizer or a function may hold it too; of another one a new one is
made. Nothing is changed before all is compared, and an object whose leaves do not agree is left alone.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pathways_jupyter.base.text import array_type


class Assignment:
    """Effects of loading on a notebook's variables; none before :meth:`apply`.

    Args:
      variables: Those of the save, by name.
      classes: The classes that objects had, by the id of each dictionary in `variables` that has their leaves.
      present: The variables that there are.
      reserved: Returns why a name must not be set, as the end of a sentence; empty if it may be.

    Attributes:
      names: The variables that are set.
      into: Those of them with objects that get their leaves.
      replaced: Those of them that had another value.
      dictionaries: Those of them with dictionaries of leaves, with the class that the first one had.
      kept: Why the others are not set, a sentence each.
    """

    def __init__(
        self,
        variables: Mapping[str, Any],
        classes: Mapping[int, str],
        present: Mapping[str, Any],
        reserved: Callable[[str], str],
    ) -> None:
        self._variables, self._classes, self._present = variables, classes, present
        self.names: list[str] = []
        self.into: list[str] = []
        self.replaced: list[str] = []
        self.dictionaries: dict[str, str] = {}
        self.kept: list[str] = []
        for name, value in variables.items():
            if why := reserved(name):
                self.kept.append(f"{name} {why}")
                continue
            matching = _Matching(classes, change=False)
            try:
                matching.match(name, present.get(name), value)
            except _DisagreesError as error:
                self.kept.append(str(error))
                continue
            self.names.append(name)
            if matching.objects:
                self.into.append(name)
            elif present.get(name) is not None:
                self.replaced.append(name)
            if matching.classes:
                self.dictionaries[name] = matching.classes[0]

    def apply(self) -> dict[str, Any]:
        """Change the objects; return what to set, by name."""
        matching = _Matching(self._classes, change=True)
        return {name: matching.match(name, self._present.get(name), self._variables[name]) for name in self.names}


class _DisagreesError(Exception):
    """An object and saved leaves do not fit; the message is a sentence without its end."""


class _Matching:
    """Compares variables with what was saved of them.

    Args:
      classes: As for :class:`Assignment`.
      change: Give the objects their leaves, and put them where these are in what was loaded.

    Attributes:
      objects: How many objects get leaves.
      classes: Of the objects that are dictionaries now.
    """

    def __init__(self, classes: Mapping[int, str], *, change: bool) -> None:
        self._classes, self._change = classes, change
        self._known: dict[int, Any] = {}
        self.objects = 0
        self.classes: list[str] = []

    def match(self, path: str, present: Any, value: Any) -> Any:
        """Return `value` with the objects in `present`, instead of dictionaries of their leaves.

        Raises:
          _DisagreesError: There is an object, and it has other leaves.
        """
        if id(value) in self._known:
            return self._known[id(value)]
        if id(value) in self._classes:
            matched = self._known[id(value)] = self._object(path, present, value)
            return matched
        if _is_object(present):
            what = f"a {type(present).__name__} here and a {type(value).__name__} in the save"
            raise _DisagreesError(f"{path} is {what}")
        if type(value) not in (dict, list, tuple):
            return value
        # Before what is in it, which may be itself.
        self._known[id(value)] = value
        if type(value) is dict:
            there = present if isinstance(present, Mapping) else {}
            fresh = {key: self.match(f"{path}[{key!r}]", there.get(key), each) for key, each in value.items()}
            if self._change:
                value.update(fresh)
            return value
        same = isinstance(present, (list, tuple)) and len(present) == len(value)
        items = enumerate(zip(present if same else [None] * len(value), value, strict=True))
        made = [self.match(f"{path}[{number}]", *pair) for number, pair in items]
        if self._change and type(value) is list:
            value[:] = made
        elif self._change and any(new is not old for new, old in zip(made, value, strict=True)):
            self._known[id(value)] = tuple(made)
        return self._known[id(value)]

    def _object(self, path: str, present: Any, leaves: Mapping[str, Any]) -> Any:
        import jax

        if not _is_object(present):
            self.classes.append(self._classes[id(leaves)])
            return leaves
        flat, structure = jax.tree_util.tree_flatten_with_path(present)
        paths = [jax.tree_util.keystr(inner) for inner, _ in flat]
        for inner, (_, leaf) in zip(paths, flat, strict=True):
            if inner not in leaves:
                raise _DisagreesError(f"{path}{inner} is not in the save")
            if (here := _kind(leaf)) != (saved := _kind(leaves[inner])):
                raise _DisagreesError(f"{path}{inner} is {here} here and {saved} in the save")
        if more := leaves.keys() - set(paths):
            raise _DisagreesError(f"{path}{min(more)} is in the save and not here")
        self.objects += 1
        return _graft(present, structure.unflatten([leaves[inner] for inner in paths])) if self._change else leaves


def _is_object(value: Any) -> bool:
    """Return whether `value` is a pytree with a class of its own."""
    import jax

    if type(value) in (list, tuple, dict) or isinstance(value, type):
        return False
    return not jax.tree_util.all_leaves([value]) and value is not None


def _kind(leaf: Any) -> str:
    """Return what has to agree of a leaf: shape and type of arrays."""
    shape = getattr(leaf, "shape", None)
    if shape is None or not hasattr(leaf, "dtype"):
        return "a number" if isinstance(leaf, (bool, int, float, complex)) else f"a {type(leaf).__name__}"
    return array_type(leaf)


def _graft(old: Any, new: Any) -> Any:
    """Give `old` what is in `new`, which has the same structure; return it, or `new` if `old` cannot be changed."""
    import jax

    if old is new or type(old) is not type(new):
        return new
    if _is_variable(old):
        old.copy_from(new)
        return old
    if isinstance(new, dict):
        new.update({key: _graft(old[key], each) for key, each in new.items() if key in old})
        return new
    if type(new) is list and len(old) == len(new):
        new[:] = map(_graft, old, new)
        return new
    if isinstance(new, tuple) and (type(new) is tuple or hasattr(new, "_fields")):
        parts = list(map(_graft, old, new))
        return tuple(parts) if type(new) is tuple else type(new)(*parts)
    if not _is_object(old) or not hasattr(old, "__dict__"):
        return new
    there, fresh, leaves = vars(old), vars(new), jax.tree.leaves(new)
    fresh.update({name: _graft(there[name], each) for name, each in fresh.items() if name in there})
    if getattr(getattr(old, "__dataclass_params__", None), "frozen", False):
        return new
    # Not setattr(), with which a class may compute, or refuse what it has itself.
    there.update(fresh)
    # An object that is not made of Python's attributes, such as a Partial, has not got them.
    return old if all(map(operator.is_, jax.tree.leaves(old), leaves)) else new


def _is_variable(value: Any) -> bool:
    """Return whether `value` is one of Flax's, whose array is in none of its attributes."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, nnx.Variable)
