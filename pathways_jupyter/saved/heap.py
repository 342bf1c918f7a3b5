"""All references between the objects of this process, asked of the garbage collector in one pass.

A search that walks down from variables finds what it knows how to open, and misses what modules, classes, generators,
threads and caches hold. The garbage collector knows the references of every container, whatever made it. Two kinds it
does not report: the elements of NumPy's object arrays, and the local variables of functions that are running; both are
read here by other means. What C code holds is in neither, and shows only in the count of an object's references.
"""

from __future__ import annotations

import gc
import sys
import threading
import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_PART = 2_000
"""Objects whose references are looked at together: each by itself would take a second, in Python."""
LOCALS_CAN_BE_SET = sys.version_info >= (3, 13)
"""The variables of a function that has begun can be set from outside, since PEP 667."""
_OPTIMIZED = 1
"""CO_OPTIMIZED, of functions: their variables are not a dictionary."""
_SEARCH = tuple(f"pathways_jupyter.saved.{each}" for each in ("heap", "holders", "paths"))
_CONTAINERS = (tuple, dict, frozenset, np.ndarray)
"""Containers that the garbage collector may not list, because nothing in them makes a cycle."""
_PLUMBING = frozenset({"pathways_jupyter", "IPython", "ipykernel", "asyncio", "tornado", "threading", "traitlets"})
"""Packages whose running functions pass on what others hold."""


@dataclass(frozen=True)
class RunningCall:
    """A function that is running.

    Attributes:
      frame: Its frame.
      thread: The name of the thread that runs it; empty for this one.
      variables: Its local variables that hold their values themselves, and not through a cell.
      copies: Dictionaries of its variables: `variables`, and up to Python 3.12 the frame's own.
    """

    frame: types.FrameType
    thread: str
    variables: Mapping[str, Any]
    copies: tuple[Mapping[str, Any], ...]

    @property
    def module(self) -> str:
        """The name of the function's module."""
        return str(self.frame.f_globals.get("__name__", ""))

    @property
    def computes(self) -> bool:
        """Return whether it is a function of the user's, and none that passes on what others hold."""
        return self.module.partition(".")[0] not in _PLUMBING


def calls() -> list[RunningCall]:
    """Return the functions that are running, on all threads."""
    names = {each.ident: each.name for each in threading.enumerate()}
    own, frames = threading.get_ident(), []
    # Not by the frame of this function, which would hold itself, and with it the callers' until they are collected.
    innermost = {**sys._current_frames(), own: sys._getframe(1)}
    while innermost:
        ident, frame = innermost.popitem()
        thread = "" if ident == own else names.get(ident, str(ident))
        while frame is not None:
            # Not the search's own, which would keep all of the heap until they are collected.
            if frame.f_code.co_flags & _OPTIMIZED and not frame.f_globals.get("__name__", "").startswith(_SEARCH):
                cells = {*frame.f_code.co_cellvars, *frame.f_code.co_freevars}
                present = frame.f_locals
                variables = {name: value for name, value in present.items() if name not in cells}
                copies = (variables, present) if isinstance(present, dict) else (variables,)
                frames.append(RunningCall(frame, thread, variables, copies))
            frame = frame.f_back  # type: ignore[assignment]
    return frames


def objects_of(kinds: tuple[type, ...]) -> list[Any]:
    """Return the objects of these types and their subclasses."""
    objects = gc.get_objects()
    those = {each for each in set(map(type, objects)) if issubclass(each, kinds)}
    return [each for each in objects if type(each) in those]


class Heap:
    """The objects of this process and their references, as of now; it keeps all of them, so drop it soon."""

    def __init__(self, parts: list[_Part]) -> None:
        self._parts = parts

    @classmethod
    def now(cls) -> Heap:
        """Return the heap of this moment."""
        # It must not be among its own objects, or all of them would stay until it is collected; so it is made last.
        objects, parts = gc.get_objects(), []
        known, referents = _sorted_ids(objects), gc.get_referents
        while objects:
            untracked: list[Any] = []
            for start in range(0, len(objects), _PART):
                holders = objects[start : start + _PART]
                flat = referents(*holders)
                held = dict(zip(map(id, flat), flat, strict=True))
                ids = _sorted_ids(held.values())
                parts.append(_Part(holders, ids))
                strangers = [held[number] for number in ids[~_are_in(ids, known)].tolist()]
                kinds = {kind for kind in set(map(type, strangers)) if issubclass(kind, _CONTAINERS)}
                untracked += [each for each in strangers if type(each) in kinds and _may_hold(each)]
            # What several parts hold is there several times.
            objects = list({id(each): each for each in untracked}.values())
            known, referents = np.sort(np.concatenate((known, _sorted_ids(objects)))), _referents
        return cls(parts)

    def holders(self, held: Mapping[int, Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each reference to one of these objects, given by their ids: the holder, and what it holds."""
        ids = np.sort(np.fromiter(held, np.int64, len(held)))
        for part in self._parts:
            if (some := ids[_are_in(ids, part.ids)]).size:
                for number, holders in part.holders(some):
                    for holder in holders:
                        yield holder, held[number]


class _Part:
    """Some objects, and the sorted ids of what any of them holds: most parts hold nothing of what is looked for."""

    def __init__(self, objects: list[Any], ids: np.ndarray) -> None:
        self._objects, self.ids = objects, ids
        # Each reference by itself: what is held, and the number of its holder.
        self._references: tuple[np.ndarray, np.ndarray] | None = None

    def holders(self, ids: np.ndarray) -> Iterator[tuple[int, list[Any]]]:
        """Yield each of these ids, and the objects that hold it, as often as they do."""
        if self._references is None:
            flat, counts = [], []
            for each in self._objects:
                # One list at a time: the collector would look through many, again and again.
                held = _referents(each)
                flat += held
                counts.append(len(held))
            found = np.fromiter(map(id, flat), np.int64, len(flat))
            order = np.argsort(found)
            self._references = found[order], np.repeat(np.arange(len(counts)), counts)[order]
        found, holders = self._references
        begins, ends = np.searchsorted(found, ids), np.searchsorted(found, ids, "right")
        for number, begin, end in zip(ids.tolist(), begins.tolist(), ends.tolist(), strict=True):
            yield number, [self._objects[holder] for holder in holders[begin:end].tolist()]


class FewReferrers:
    """The holders of a few objects, asked of the garbage collector one level at a time: faster, and not complete.

    What the collector does not list is missing, and so is what was made since this object was, and the holders of more
    objects than :attr:`FEW`.
    """

    FEW = 32
    """The collector compares each reference of the process with each object that is asked for."""

    def __init__(self) -> None:
        self._known = set(map(id, gc.get_objects()))

    def holders(self, held: Mapping[int, Any]) -> Iterator[tuple[Any, Any]]:
        """Yield as :meth:`Heap.holders`."""
        for holder in gc.get_referrers(*held.values()) if len(held) <= self.FEW else ():
            if id(holder) in self._known:
                for each in gc.get_referents(holder):
                    if id(each) in held:
                        yield holder, each


def _may_hold(container: Any) -> bool:
    return not isinstance(container, np.ndarray) or bool(container.dtype == object)


def _referents(*holders: Any) -> list[Any]:
    if not any(isinstance(each, np.ndarray) for each in holders):
        return gc.get_referents(*holders)
    return [
        held
        for holder in holders
        for held in (holder.flat if isinstance(holder, np.ndarray) else gc.get_referents(holder))
    ]


def _sorted_ids(objects: Collection[Any]) -> np.ndarray:
    ids = np.fromiter(map(id, objects), np.int64, len(objects))
    ids.sort()
    return ids


def _are_in(ids: np.ndarray, those: np.ndarray) -> np.ndarray:
    """Return of each of these sorted ids whether it is among the others, which are sorted as well."""
    if not those.size:
        return np.zeros(len(ids), bool)
    found: np.ndarray = those[np.minimum(np.searchsorted(those, ids), len(those) - 1)] == ids
    return found
