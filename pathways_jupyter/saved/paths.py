"""Names of objects by what holds them: ``params['w']``, ``Model.W``, ``gymnax.frozen_lake._DIRECTIONS``."""

from __future__ import annotations

import collections
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pathways_jupyter.saved.heap import FewReferrers, Heap, RunningCall, calls

_DEEPEST = 24
"""Levels of holders: more is no name that is read."""
_LONGEST = 100
_SEQUENCES = (list, tuple, collections.deque)


def names(targets: Sequence[Any], variables: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Return the names of those of `targets` that have one, by their ids; for messages, which may miss some.

    Args:
      variables: As for :func:`paths`.
    """
    by_id = {id(each): each for each in targets}
    running = [each for each in calls() if each.computes]
    own = {id(each) for each in (targets, by_id, variables, *(copy for call in running for copy in call.copies))}
    heap = FewReferrers() if len(by_id) <= FewReferrers.FEW else Heap.now()
    return paths(heap, by_id, variables, running, own)


def paths(
    heap: Heap | FewReferrers,
    targets: Mapping[int, Any],
    variables: Sequence[Mapping[str, Any]],
    running: Sequence[RunningCall],
    own: Collection[int],
) -> dict[int, str]:
    """Return the names of those of `targets` that have one, by their ids.

    Args:
      heap: Where to look for their holders.
      variables: By their names; the first ones are preferred.
      running: Functions whose variables name objects where no other does.
      own: Ids of holders that name nothing.
    """
    below, attributes, modules, classes = _above(heap, targets, variables, own)
    path_of: dict[int, str] = {}
    everything = {id(each): each for pair in below.values() for each in (pair[0], *pair[1])} | dict(targets)

    def descend(roots: Iterator[tuple[str, int]]) -> None:
        names = [(name, number) for name, number in roots if number not in path_of and number in everything]
        path_of.update((number, name) for name, number in reversed(names))
        queue = collections.deque(number for _, number in names)
        while queue:
            holder, held = below.get(queue.popleft(), (None, ()))
            for each in held:
                if id(each) not in path_of:
                    path_of[id(each)] = f"{path_of[id(holder)]}{_step(holder, each, id(holder) in attributes)}"
                    queue.append(id(each))

    for mapping in variables:
        descend((name, id(value)) for name, value in list(mapping.items()))
    for call in running:
        descend((name, id(value)) for name, value in call.variables.items())
    for module in modules:
        prefix = "" if module["__name__"] == "__main__" else f"{module['__name__']}."
        descend((f"{prefix}{name}", id(value)) for name, value in list(module.items()) if isinstance(name, str))
    descend((_qualified(each), id(each)) for each in classes)
    return {each: path_of[each][:_LONGEST] for each in targets if each in path_of}


_Below = dict[int, tuple[Any, list[Any]]]


def _above(
    heap: Heap | FewReferrers, targets: Mapping[int, Any], variables: Sequence[Mapping[str, Any]], own: Collection[int]
) -> tuple[_Below, set[int], list[dict[str, Any]], list[type]]:
    """Return what is above `targets`: by ids of holders, these and what they hold; then where the search ended.

    That is the ids of the dictionaries with attributes, and the modules' namespaces and classes that were reached.
    """
    below: _Below = {}
    attributes: set[int] = set()
    modules: list[dict[str, Any]] = []
    classes: list[type] = []
    named = {id(value) for mapping in variables for value in list(mapping.values())}
    level = {number: each for number, each in targets.items() if number not in named}
    for _ in range(_DEEPEST):
        above: dict[int, Any] = {}
        for holder, held in heap.holders(level):
            if id(holder) in own or isinstance(holder, (types.FrameType, types.ModuleType)):
                continue
            if isinstance(held, dict) and (isinstance(holder, type) or getattr(holder, "__dict__", None) is held):
                attributes.add(id(held))
            known = id(holder) in below
            below.setdefault(id(holder), (holder, []))[1].append(held)
            if known or id(holder) in named or id(holder) in targets:
                continue
            if isinstance(holder, type):
                classes.append(holder)
            elif isinstance(holder, dict) and "__name__" in holder and "__spec__" in holder:
                modules.append(holder)
            else:
                above[id(holder)] = holder
        if not above:
            break
        level = above
    return below, attributes, modules, classes


def _qualified(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "__main__" else f"{kind.__module__}.{kind.__qualname__}"


def _step(holder: Any, held: Any, has_attributes: bool) -> str:
    """Return what to add to the name of `holder` for the name of what it holds."""
    if isinstance(holder, dict):
        for key, value in list(dict.items(holder)):
            if value is held:
                return f".{key}" if has_attributes else f"[{key!r}]"
        return ""
    if isinstance(holder, _SEQUENCES):
        number = next((number for number, each in enumerate(list(holder)) if each is held), 0)
        fields = getattr(type(holder), "_fields", ())
        return f".{fields[number]}" if number < len(fields) else f"[{number}]"
    if isinstance(holder, types.FunctionType):
        return ".__closure__" if held is holder.__closure__ else ""
    attributes = getattr(holder, "__dict__", None)
    if held is attributes:
        return ""
    slots = (
        name
        for kind in type(holder).__mro__
        for name, slot in vars(kind).items()
        if isinstance(slot, types.MemberDescriptorType) and getattr(holder, name, None) is held
    )
    names = (name for name, value in list(attributes.items()) if value is held) if isinstance(attributes, dict) else ()
    return next((f".{name}" for name in (*names, *slots)), "")
