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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_PART = 20_000
"""Objects whose references are looked at together: those of all would take a hundred megabytes for a moment."""
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

    def __init__(self, objects: list[Any], ids: np.ndarray, holders: np.ndarray) -> None:
        order = np.argsort(ids)
        self._objects, self._ids, self._holders = objects, ids[order], holders[order]

    @classmethod
    def now(cls) -> Heap:
        """Return the heap of this moment."""
        # It must not be among its own objects, or all of them would stay until it is collected; so it is made last.
        objects = gc.get_objects()
        known, begin = set(map(id, objects)), 0
        ids, holders = [], []
        while begin < len(objects):
            untracked: dict[int, Any] = {}
            referents, end = _referents if begin else gc.get_referents, len(objects)
            for start in range(begin, end, _PART):
                part = objects[start : min(start + _PART, end)]
                flat, counts = [], []
                for each in part:
                    # One list at a time: the collector would look through many, again and again.
                    held = referents(each)
                    flat += held
                    counts.append(len(held))
                ids.append(np.fromiter(map(id, flat), np.int64, len(flat)))
                holders.append(np.repeat(np.arange(start, start + len(part)), counts))
                kinds = {kind for kind in set(map(type, flat)) if issubclass(kind, _CONTAINERS)}
                untracked |= {
                    id(each): each for each in flat if type(each) in kinds and id(each) not in known and _may_hold(each)
                }
            objects += untracked.values()
            known |= untracked.keys()
            begin = end
        return cls(objects, np.concatenate(ids), np.concatenate(holders))

    def holders(self, held: Mapping[int, Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each reference to one of these objects, given by their ids: the holder, and what it holds."""
        ids = np.fromiter(held, np.int64, len(held))
        begins, ends = np.searchsorted(self._ids, ids), np.searchsorted(self._ids, ids, "right")
        for number, begin, end in zip(held, begins.tolist(), ends.tolist(), strict=True):
            for holder in self._holders[begin:end].tolist():
                yield self._objects[holder], held[number]


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


def _referents(holder: Any) -> list[Any]:
    return list(holder.flat) if isinstance(holder, np.ndarray) else gc.get_referents(holder)
