"""Global batches for a run whose slices change, of the same size or in proportion to the slices.

No row is lost, and none is used twice. After a loss the run repeats some steps, and must get the same batches again: if
the iterator has a state (``get_state``/``set_state``, as grain's have), that is restored; otherwise the batches since
the oldest snapshot are kept here. If the size follows the slices, what is cut off from one batch begins the next.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pathways_jupyter.elastic.errors import ElasticRuntimeError


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
        self._rows_of_all = 0
        self._drawn = 0
        self._kept: dict[int, Any] = {}

    def position(self) -> Position:
        """Return where the next batch begins."""
        return Position(self._count, self._used, self._state() if self._open is None else self._state_before)

    def restore(self, position: Position) -> None:
        """Go to `position`.

        If the iterator has no state, the position may be older than what was read by what :meth:`forget` has kept, or
        ahead of it: an iterator that is new, as in another process, is taken to begin with the first batch.

        Raises:
          ElasticRuntimeError: The batches from there on are not kept any more, or the data end before it.
        """
        self._open, self._used, self._count = None, 0, position.count
        if self._stateful is not None:
            self._stateful.set_state(copy.deepcopy(position.state))
        else:
            missing = [number for number in range(position.count, self._drawn) if number not in self._kept]
            if missing:
                raise ElasticRuntimeError(
                    f"The data are past batch {missing[0]}, which the training needs again.",
                    hint="Give train_loop data that begin with the first batch, or that have get_state and set_state.",
                )
            while self._drawn < position.count:
                if next(self._iterator, self) is self:
                    raise ElasticRuntimeError(f"The data end after {self._drawn} batches; {position.count} were used.")
                self._drawn += 1
        if position.used:
            self._open_next()
            self._used = position.used

    def forget(self, before: Position) -> None:
        """Drop the batches that are kept for positions older than `before`."""
        self._kept = {number: batch for number, batch in self._kept.items() if number >= before.count}

    def next(self, share: float = 1.0) -> Any:
        """Return the next batch, with `share` (at most 1) of a batch's rows.

        Raises:
          StopIteration: The iterator has ended. Rows that make no whole batch are left out.
          ValueError: `share` of a batch is no whole number of rows.
        """
        if share == 1.0 and self._open is None:
            batch = self._draw()
            self._count += 1
            return batch
        if self._open is None:
            self._open_next()
        wanted = self._rows_of_all * share
        if abs(wanted - round(wanted)) > 1e-6:
            raise ValueError(f"{share:.3g} of a batch of {self._rows_of_all} rows is no whole number of rows.")
        missing, parts = round(wanted), []
        while True:
            rows, begin = _rows(self._open), self._used
            end = min(rows, begin + missing)
            parts.append(_cut(self._open, begin, end))
            missing -= end - begin
            self._used = end
            if end == rows:
                self._open, self._used = None, 0
                self._count += 1
            if not missing:
                return parts[0] if len(parts) == 1 else _joined(parts)
            self._open_next()

    def _open_next(self) -> None:
        self._state_before = self._state()
        self._open = self._draw()

    def _draw(self) -> Any:
        """Return batch number `count`, from those that are kept or from the iterator."""
        number = self._count
        if number in self._kept:
            batch = self._kept[number]
        else:
            batch = next(self._iterator)
            if self._stateful is None:
                self._kept[number] = batch
            self._drawn = number + 1
        self._rows_of_all = self._rows_of_all or _rows(batch)
        return batch

    def _state(self) -> Any:
        return None if self._stateful is None else copy.deepcopy(self._stateful.get_state())


def _rows(batch: Any) -> int:
    import jax

    return int(jax.tree.leaves(batch)[0].shape[0])


def _cut(batch: Any, begin: int, end: int) -> Any:
    import jax

    return jax.tree.map(lambda leaf: leaf[begin:end], batch)


def _joined(parts: list[Any]) -> Any:
    import jax
    import numpy as np

    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
