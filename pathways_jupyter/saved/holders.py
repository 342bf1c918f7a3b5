"""Every holder of some objects: who cannot hold another in their place, and how the others do.

What can be changed is changed in place, so that it stays the object that it was. Tuples and the like are made again,
once each, and put into their own holders. What can be neither (an iterator, a cache in C, a function that is running)
is known beforehand. The count of an object's references proves that no holder was missed.
"""

from __future__ import annotations

import collections
import functools
import gc
import sys
import types
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pathways_jupyter.saved.heap import LOCALS_CAN_BE_SET, Heap, RunningCall, calls
from pathways_jupyter.saved.paths import paths

OUTSIDE = "code outside Python"
"""The holder of what has more references than Python's objects have."""

_REMADE = (tuple, frozenset, types.MethodType)
_FRAMES: Mapping[type, str] = {
    types.GeneratorType: "gi_frame",
    types.CoroutineType: "cr_frame",
    types.AsyncGeneratorType: "ag_frame",
}
_CLASS_OF_PYTHON = 1 << 9
"""Py_TPFLAGS_HEAPTYPE."""
_IMMORTAL = 1 << 30
"""No object has so many references; by so many, Python marks what it does not count."""

_Reference = tuple[Any, Callable[[Any], None]]
"""A held object, and a function that puts another in its place."""


class _Probe:
    """An object whose holders are known: its count shows which references the search itself makes."""


class Holders:
    """The holders of `targets`, found in one pass of the heap.

    Args:
      targets: Any objects; each counts once.
      own: The caller's containers of targets, which do not count.
      variables: Where names come from; the first ones are preferred.
      skip: Whether this holder of this object is none of the user's, and does not count.

    Attributes:
      fixed: By the ids of targets: their holders that cannot hold other objects, each an object, a
        :class:`.RunningCall` or :data:`OUTSIDE`. Functions that other threads run, and coroutines, are among them also
        where their variables can be set, because they may go on at any time.
      settable: The ids of the targets with a holder that can hold another in their place, perhaps besides the `fixed`.
      held: The ids of the targets that have any holder. What only functions hold that an error has ended has none: no
        program computes with it.
      names: The path by which a variable, a module or a class holds a target, by its id; also those of what is `fixed`.
    """

    def __init__(
        self,
        targets: Sequence[Any],
        *,
        own: Collection[Any] = (),
        variables: Sequence[Mapping[str, Any]] = (),
        skip: Callable[[Any, Any], bool] = lambda holder, held: False,
    ) -> None:
        known = [(_Probe(),)]
        self._targets: dict[int, Any] = {id(each): each for each in (known[0][0], *targets)}
        self._calls, self._skip = calls(), skip
        self._own = {id(each) for each in (*own, targets, self._targets, known, variables)}
        self._own |= {id(copy) for call in self._calls for copy in call.copies}
        # What an array or a mesh holds of itself.
        self._own |= {id(part) for each in self._targets.values() for part in gc.get_referents(each)}
        heap = Heap.now()
        self._owners: dict[int, type] = {}
        self._places: dict[int, Any] = {}
        self._made: dict[int, Any] = {}
        self._settable: set[int] = set()
        self._remade_holders: dict[int, list[int]] = collections.defaultdict(list)
        self._fixed: dict[int, list[Any]] = collections.defaultdict(list)
        level, sample, usual = self._targets, id(known[0][0]), 0
        while level:
            references, above = self._search(heap, level)
            surplus = dict(zip(level, map(sys.getrefcount, level.values()), strict=True))
            for each in level:
                surplus[each] -= references[each]
            usual = surplus.get(sample, usual)
            for each in level:
                if usual < surplus[each] < _IMMORTAL:
                    self._fixed[each].append(OUTSIDE)
            self._made |= above
            level, sample = above, id(known[0])
        del self._targets[id(known[0][0])], self._made[id(known[0])]
        self.settable: set[int] = set()
        self.fixed: dict[int, list[Any]] = {}
        for each in self._targets:
            above_it = self._upwards(each)
            if fixed := [fixed_holder for number in above_it for fixed_holder in self._fixed[number]]:
                self.fixed[each] = fixed
            if not self._settable.isdisjoint(above_it):
                self.settable.add(each)
        self.held = self.settable | self.fixed.keys()
        self._calls = [call for call in self._calls if call.computes]
        named = self._targets | {id(each): each for holders in self.fixed.values() for each in holders}
        self.names = paths(heap, named, variables, self._calls, self._own | {id(variables)}) if variables else {}
        # The frames of others would stay, with all that they hold.
        ids = self._targets.keys() | self._made.keys()
        self._calls = [each for each in self._calls if not ids.isdisjoint(map(id, each.variables.values()))]

    def _search(self, heap: Heap, level: Mapping[int, Any]) -> tuple[collections.Counter[int], dict[int, Any]]:
        """Note the holders of these objects; return the counts of references, and the holders that are to be remade."""
        references: collections.Counter[int] = collections.Counter()
        counts_of: dict[int, tuple[Any, collections.Counter[int]]] = {}
        above: dict[int, Any] = {}
        for holder, held in heap.holders(level):
            references[id(held)] += 1
            # The frames of running functions are not here, and a generator holds what its frame does.
            if id(holder) in self._own or id(holder) in self._targets or isinstance(holder, types.FrameType):
                continue
            if self._skip(holder, held):
                continue
            if isinstance(holder, _REMADE):
                self._remade_holders[id(held)].append(id(holder))
                if id(holder) not in self._made and id(holder) not in level:
                    above[id(holder)] = holder
            else:
                counts_of.setdefault(id(holder), (holder, collections.Counter()))[1][id(held)] += 1
        for call in self._calls:
            for value in call.variables.values():
                if id(value) in level:
                    references[id(value)] += 1
                    if call.computes and LOCALS_CAN_BE_SET:
                        self._settable.add(id(value))
                    if call.computes and (call.thread or not LOCALS_CAN_BE_SET):
                        self._fixed[id(value)].append(call)
        for holder, counts in counts_of.values():
            if isinstance(holder, dict) and "__module__" in holder and (owner := _class_with(holder, heap)):
                self._owners[id(holder)] = owner
            settable = collections.Counter(id(value) for value, _ in self._references(holder, level))
            may_go_on = isinstance(holder, (types.CoroutineType, types.AsyncGeneratorType))
            self._places[id(holder)] = holder
            self._settable |= settable.keys()
            for each, count in counts.items():
                if may_go_on or settable[each] < count:
                    self._fixed[each].append(holder)
        return references, above

    def _upwards(self, held: int) -> list[int]:
        """Return the id `held`, and those of what is to be remade because of it."""
        above = [held]
        for each in above:
            above += [holder for holder in self._remade_holders[each] if holder not in above]
        return above

    def replace(self, change: Callable[[Any], Any]) -> set[int]:
        """Put ``change(target)`` wherever a target is held, and return the ids of those that were held somewhere.

        Args:
          change: Returns the target itself to leave it.
        """
        ids = self._targets.keys() | self._made.keys()
        # All of them first: what `change` looks up in may hold targets itself.
        made = {number: change(target) for number, target in self._targets.items()}
        new = functools.partial(self._new, made)
        placed: set[int] = set()
        for holder in self._places.values():
            for value, put in self._references(holder, ids):
                placed.add(id(value))
                if (other := new(value)) is not value:
                    put(other)
        for call in self._calls if LOCALS_CAN_BE_SET else ():
            variables = call.frame.f_locals
            for name, value in call.variables.items():
                if id(value) in ids and variables.get(name) is value:
                    placed.add(id(value))
                    if (other := new(value)) is not value:
                        variables[name] = other
        return {each for each in self._targets if not placed.isdisjoint(self._upwards(each))}

    def _new(self, made: dict[int, Any], value: Any) -> Any:
        """Return what takes the place of `value`; `made` has what takes that of others, by their ids."""
        if id(value) in self._made and id(value) not in made:
            made[id(value)] = _remade(value, functools.partial(self._new, made))
        return made.get(id(value), value)

    def _references(self, holder: Any, ids: Container[int]) -> Iterator[_Reference]:
        """Yield the references of `holder` to objects with these ids that can be set."""
        if isinstance(holder, dict):
            owner = self._owners.get(id(holder))
            for key, value in list(dict.items(holder)):
                if id(value) in ids:
                    if owner is None:
                        yield value, functools.partial(_set_item, holder, key)
                    else:
                        yield value, functools.partial(type.__setattr__, owner, key)
                if id(key) in ids:
                    yield key, functools.partial(_set_key, holder, key)
        elif isinstance(holder, list):
            for number, value in enumerate(list.__iter__(holder)):
                if id(value) in ids:
                    yield value, functools.partial(list.__setitem__, holder, number)
        elif isinstance(holder, collections.deque):
            for number, value in enumerate(collections.deque.copy(holder)):
                if id(value) in ids:
                    yield value, functools.partial(collections.deque.__setitem__, holder, number)
        elif isinstance(holder, set):
            for value in set.copy(holder):
                if id(value) in ids:
                    yield value, functools.partial(_set_member, holder, value)
        elif isinstance(holder, types.CellType):
            yield holder.cell_contents, functools.partial(setattr, holder, "cell_contents")
        elif isinstance(holder, np.ndarray):
            if holder.flags.writeable:
                for index in np.ndindex(holder.shape):
                    if id(holder[index]) in ids:
                        yield holder[index], functools.partial(_set_element, holder, index)
        elif type(holder) in _FRAMES:
            frame = getattr(holder, _FRAMES[type(holder)])
            if frame is not None and LOCALS_CAN_BE_SET:
                variables = frame.f_locals
                cells = {*frame.f_code.co_cellvars, *frame.f_code.co_freevars}
                for name, value in variables.items():
                    if id(value) in ids and name not in cells:
                        yield value, functools.partial(variables.__setitem__, name)
        else:
            yield from _attributes(holder, ids)


def described(holder: Any, name: str = "") -> str:
    """Return an entry of :attr:`Holders.fixed` as a noun phrase; `name` is that of the holder."""
    if isinstance(holder, RunningCall):
        return f"thread {holder.thread}" if holder.thread else f"a call of {holder.frame.f_code.co_qualname}"
    if type(holder) in _FRAMES:
        frame = getattr(holder, _FRAMES[type(holder)])
        line = f", line {frame.f_lineno}" if frame is not None else ""
        return f"{type(holder).__name__.replace('_', ' ')} {holder.__qualname__}{line}"
    if isinstance(holder, functools._lru_cache_wrapper):
        return f"the cache of {holder.__qualname__}"
    if isinstance(holder, str):
        return holder
    kind = type(holder)
    said = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name} ({said})" if name else f"an object of {said}"


def _class_with(namespace: dict[str, Any], heap: Heap) -> type | None:
    """Return the class whose attributes these are: it makes the change, because Python caches them."""
    for holder, _ in heap.holders({id(namespace): namespace}):
        if isinstance(holder, type) and gc.get_referents(type.__dict__["__dict__"].__get__(holder))[0] is namespace:
            return holder
    return None


def _attributes(holder: Any, ids: Container[int]) -> Iterator[_Reference]:
    if isinstance(holder, types.FunctionType) and id(holder.__defaults__) in ids:
        yield holder.__defaults__, functools.partial(setattr, holder, "__defaults__")
    if isinstance(holder, functools.partial):
        for number, value in enumerate((holder.func, holder.args)):
            if id(value) in ids:
                yield value, functools.partial(_set_part, holder, number)
    if isinstance(holder, BaseException) and id(holder.args) in ids:
        yield holder.args, functools.partial(BaseException.__dict__["args"].__set__, holder)
    # Neither properties nor __setattr__ of the class, so that a frozen dataclass is changed too.
    attributes = getattr(holder, "__dict__", None)
    if isinstance(attributes, dict):
        for name, value in list(attributes.items()):
            if id(value) in ids:
                yield value, functools.partial(_set_item, attributes, name)
    for kind in type(holder).__mro__:
        if kind.__flags__ & _CLASS_OF_PYTHON:
            for slot in vars(kind).values():
                if isinstance(slot, types.MemberDescriptorType) and slot.__objclass__ is kind:
                    try:
                        value = slot.__get__(holder)
                    except AttributeError:
                        continue
                    if id(value) in ids:
                        yield value, functools.partial(slot.__set__, holder)


def _remade(value: Any, new: Callable[[Any], Any]) -> Any:
    """Return `value`, which cannot be changed, made again with other parts; itself if they are the same."""
    if isinstance(value, types.MethodType):
        function, instance = new(value.__func__), new(value.__self__)
        is_same = function is value.__func__ and instance is value.__self__
        return value if is_same else types.MethodType(function, instance)
    kind = tuple if isinstance(value, tuple) else frozenset
    parts = [new(each) for each in kind.__iter__(value)]
    if all(other is each for other, each in zip(parts, kind.__iter__(value), strict=True)):
        return value
    made = kind.__new__(type(value), parts)
    if attributes := getattr(value, "__dict__", None):
        vars(made).update(attributes)
    return made


def _set_item(holder: dict[Any, Any], key: Any, value: Any) -> None:
    dict.__setitem__(holder, key, value)


def _set_key(holder: dict[Any, Any], old: Any, new: Any) -> None:
    kind = collections.OrderedDict if isinstance(holder, collections.OrderedDict) else dict
    items = [(new if key is old else key, value) for key, value in kind.items(holder)]
    kind.clear(holder)
    for key, value in items:
        kind.__setitem__(holder, key, value)


def _set_member(holder: set[Any], old: Any, new: Any) -> None:
    set.discard(holder, old)
    set.add(holder, new)


def _set_element(holder: Any, index: tuple[int, ...], value: Any) -> None:
    # Not holder[()] of an array without dimensions, which would take the value for an array of values.
    holder.reshape(-1)[np.ravel_multi_index(index, holder.shape) if index else 0] = value


def _set_part(holder: functools.partial[Any], number: int, value: Any) -> None:
    parts = [holder.func, holder.args, holder.keywords, vars(holder)]
    parts[number] = value
    holder.__setstate__(tuple(parts))  # type: ignore[attr-defined]
