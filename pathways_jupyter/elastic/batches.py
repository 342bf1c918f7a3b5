"""Global batches for a run whose slices change, of the same size or in proportion to the slices.

No row is lost, and none is used twice. After a loss the run repeats some steps, and must get the same batches again: if
the iterator has a state (``get_state``/``set_state``, as grain's have), that is restored; otherwise the batches since
the oldest snapshot are kept here. If the size follows the slices, what is cut off from one batch begins the next.

An exception that passes through a generator, also an Interrupt, finishes it, and from then on it looks like data that
have come to their end. Such an end is an error here: a run must not count as done because it was interrupted.
"""

from __future__ import annotations

import copy
import operator
import reprlib
import types
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pathways_jupyter.elastic.errors import ElasticRuntimeError

_END = object()
"""Stands for the batch after the last one."""


@runtime_checkable
class Stateful(Protocol):
    """An iterator whose position can be saved."""

    def get_state(self) -> Any:
        """Return its position."""

    def set_state(self, state: Any) -> None:
        """Go to a position that :meth:`get_state` returned."""


@dataclass(frozen=True)
class Position:
    """A position in the data.

    Attributes:
      count: Batches that have been used up.
      used: Rows that have been used of the batch after them.
      state: The iterator's own state before that batch, if it has one.
    """

    count: int
    used: int
    state: Any


class Batches:
    """Batches of any size from an iterator of global batches.

    Args:
      source: Pytrees of arrays whose first axis is the batch, all of one size.

    Attributes:
      rows: Of each; 0 before the first one.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self.source = source
        self._iterator: Iterator[Any] = iter(source)
        # An iterable may hand out iterators with a state, or be one that keeps it for them.
        both = (self._iterator, source)
        self._stateful = next((each for each in both if isinstance(each, Stateful)), None)
        self._count = 0
        self._used = 0
        self._open: Any = None
        self._state_before: Any = None
        self.rows = 0
        self._drawn = 0
        self._buffer: dict[int, Any] = {}
        self._failed_at: int | None = None
        self._failure = ""

    def position(self) -> Position:
        """Return where the next batch begins."""
        return Position(self._count, self._used, self._state() if self._open is None else self._state_before)

    def restore(self, position: Position) -> None:
        """Go to `position`.

        If the iterator has no state, the position may be older than what was read by what :meth:`forget` has kept, or
        ahead of it: an iterator that is new, as in another process, is taken to begin with the first batch.

        Raises:
          ElasticRuntimeError: The batches from there on are not kept any more, the data end before it, or an exception
            has ended the iterator.
        """
        self._open, self._used, self._count = None, 0, position.count
        if self._stateful is not None:
            if not isinstance(self._iterator, Stateful) and (self._failed_at is not None or self._has_ended):
                # The data keep the position, so another iterator of them goes on there.
                self._iterator = iter(self.source)
            self._stateful.set_state(copy.deepcopy(position.state))
            self._buffer, self._failed_at = {}, None
        else:
            is_finished = isinstance(self._iterator, types.GeneratorType) and self._iterator.gi_frame is None
            if is_finished and not self._has_ended:
                # Now, and not when the batches that are kept have been trained on once more.
                raise self._ended_too_early()
            missing = [number for number in range(position.count, self._drawn) if number not in self._buffer]
            if missing:
                raise ElasticRuntimeError(
                    f"The data are past batch {missing[0]}, which the training needs again.",
                    hint="Give train_loop data that begin with the first batch, or that have get_state and set_state.",
                )
            while (number := self._drawn) < position.count:
                if self._fetch(number) is _END:
                    raise _too_short(number, position.count)
                # In this order: an Interrupt in between must not make the next batch count as this one.
                self._drawn += 1
                del self._buffer[number]
        if position.used:
            try:
                self._open_next()
            except StopIteration:
                raise _too_short(position.count, position.count + 1) from None
            self._used = position.used

    def require_present(self, lost: Collection[Any]) -> None:
        """Check that none of the next batches that are kept went with the devices `lost`, or with a proxy.

        Raises:
          ElasticRuntimeError: One did.
        """
        import jax

        for number, batch in self._buffer.items():
            if number < self._count:
                # Only an older snapshot needs it.
                continue
            arrays = [leaf for leaf in jax.tree.leaves(batch) if isinstance(leaf, jax.Array)]
            if any(each.is_deleted() or not each.sharding.device_set.isdisjoint(lost) for each in arrays):
                raise ElasticRuntimeError(
                    f"Batch {number}, which the training needs again, went with the slice or proxy that it was on.",
                    hint="Give train_loop NumPy arrays, or data that have get_state and set_state. To go on, call it "
                    "again with the same snapshots= and a new iterator that begins with the first batch.",
                )

    def forget(self, before: Position) -> None:
        """Drop the batches that are kept for positions older than `before`."""
        self._buffer = {number: batch for number, batch in self._buffer.items() if number >= before.count}

    def next(self, share: float = 1.0, *, slices: int = 1) -> Any:
        """Return the next batch, with `share` (at most 1) of a batch's rows.

        Args:
          slices: What a batch will have to be divided among; checked now, and not when a smaller share is needed.

        Raises:
          StopIteration: The iterator has ended. Rows that make no whole batch are left out.
          ElasticRuntimeError: A batch cannot be divided among `slices`.
          ValueError: `share` of a batch is no whole number of rows.
        """
        import jax
        import numpy as np

        if share == 1.0 and self._open is None:
            batch = self._draw()
            self._require_divisible(slices)
            self._count += 1
            return batch
        if self._open is None:
            self._open_next()
        self._require_divisible(slices)
        size = self.rows * share
        if abs(size - round(size)) > 1e-6:
            raise ValueError(f"{share:.3g} of a batch of {self.rows} rows is no whole number of rows.")
        missing, parts = round(size), []
        while True:
            rows, begin = _rows(self._open), self._used
            end = min(rows, begin + missing)
            parts.append(jax.tree.map(operator.itemgetter(slice(begin, end)), self._open))
            missing -= end - begin
            self._used = end
            if end == rows:
                self._open, self._used = None, 0
                self._count += 1
            if not missing:
                if len(parts) == 1:
                    return parts[0]
                return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
            self._open_next()

    def _require_divisible(self, slices: int) -> None:
        rows = self.rows
        if rows % slices:
            more = (rows // slices + 1) * slices
            raise ElasticRuntimeError(
                f"A batch of {rows} rows cannot be scaled with {slices} slices: {rows} is no multiple of {slices}.",
                hint=f'Give train_loop batches of {more} rows, or another multiple of {slices}; or batch="keep".',
            )

    def _open_next(self) -> None:
        self._state_before = self._state()
        self._open = self._draw()

    def _draw(self) -> Any:
        """Return batch number `count`, from those that are kept or from the iterator."""
        number = self._count
        batch = self._fetch(number)
        if batch is _END:
            raise StopIteration
        self._drawn = max(self._drawn, number + 1)
        if self._stateful is not None:
            del self._buffer[number]
        self.rows = self.rows or _rows(batch)
        return batch

    def _fetch(self, number: int) -> Any:
        """Return batch `number`, which is kept or the next one of the iterator; _END if that has ended.

        Raises:
          ElasticRuntimeError: It was ended by an exception, or had ended before its first batch.
        """
        if number not in self._buffer:
            try:
                _draw_into(self._buffer, number, self._iterator)
            except BaseException as error:
                if number not in self._buffer:
                    # Not the error itself, which would hold on to the state through its traceback.
                    self._failed_at, self._failure = number, type(error).__name__
                raise
        if self._buffer[number] is _END and (number == self._failed_at or not number):
            del self._buffer[number]
            raise self._ended_too_early()
        return self._buffer[number]

    @property
    def _has_ended(self) -> bool:
        """Return whether the iterator was seen to have no more batches."""
        return any(batch is _END for batch in self._buffer.values())

    def _ended_too_early(self) -> ElasticRuntimeError:
        if self._failed_at is None:
            return ElasticRuntimeError(
                "The data have no batch: their iterator has ended already.",
                hint="An iterator can be used once only: give train_loop a new one.",
            )
        return ElasticRuntimeError(
            f"The data iterator was ended by {self._failure} while it made batch {self._failed_at}.",
            hint="A generator cannot go on after that. Call train_loop again with the same snapshots=, and with a new "
            "iterator that begins with the first batch, or an object with __next__, get_state and set_state.",
        )

    def _state(self) -> Any:
        return None if self._stateful is None else copy.deepcopy(self._stateful.get_state())


def _draw_into(buffer: dict[int, Any], number: int, iterator: Iterator[Any]) -> None:
    """Set ``buffer[number]`` to the next batch, or _END, in one step that no Interrupt can divide.

    Signals are handled between byte codes, so ``buffer[number] = next(iterator, _END)`` could lose a batch. One call
    into C draws and keeps it: after an Interrupt it is either still in the iterator, or in the buffer.
    """
    buffer.update(zip((number,), map(next, (iterator,), (_END,)), strict=True))


def _too_short(there: int, used: int) -> ElasticRuntimeError:
    return ElasticRuntimeError(
        f"The data end after {there} batches; {used} were used.",
        hint="Give train_loop the same data as before, from the first batch on.",
    )


def _rows(batch: Any) -> int:
    import jax

    leaves = jax.tree.leaves(batch)
    shape = getattr(leaves[0], "shape", ()) if leaves else ()
    if not shape:
        raise ElasticRuntimeError(
            f"The data gave {reprlib.repr(batch)}, which is no batch.",
            hint="A batch is a pytree of arrays with the batch as their first axis.",
        )
    return int(shape[0])
