"""Global batches for a run whose slices change, of the same size or in proportion to the slices.

No row is lost, and none is used twice. After a loss the run repeats some steps, and must get the same batches again: if
the iterator has a state (``get_state``/``set_state``, as grain's have), that is restored; otherwise the batches since
the oldest snapshot are kept here. If the size follows the slices, what is cut off from one batch begins the next.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """An iterator whose position can be saved."""

    def get_state(self) -> Any:
        """Return its position."""

    def set_state(self, state: Any) -> None:
        """Go to a position that :meth:`get_state` returned."""


@dataclass(frozen=True)
class Position:
    """A position between two batches.

    Attributes:
      count: Batches taken from the iterator so far.
      state: The iterator's own state, if it has one.
      rest: Rows that were taken and not used yet.
    """

    count: int
    state: Any
    rest: Any


class Batches:
    """Batches of any size from an iterator of global batches.

    Args:
      source: Pytrees of arrays whose first axis is the batch, all of one size.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self._stateful = source if isinstance(source, Stateful) else None
        self._iterator: Iterator[Any] = iter(source)
        self._count = 0
        self._rest: Any = None
        self._full = 0
        self._kept: dict[int, Any] = {}

    def position(self) -> Position:
        """Return where the next batch begins."""
        state = copy.deepcopy(self._stateful.get_state()) if self._stateful is not None else None
        return Position(self._count, state, self._rest)

    def restore(self, position: Position) -> None:
        """Go back to `position`, which must not be older than the last one that was passed to :meth:`forget`."""
        if self._stateful is not None:
            self._stateful.set_state(copy.deepcopy(position.state))
        self._count, self._rest = position.count, position.rest

    def forget(self, before: Position) -> None:
        """Drop the batches that are kept for positions older than `before`."""
        self._kept = {number: batch for number, batch in self._kept.items() if number >= before.count}

    def next(self, share: float = 1.0) -> Any:
        """Return the next batch, with `share` (at most 1) of a batch's rows.

        Raises:
          StopIteration: The iterator has ended. Rows that make no whole batch are left out.
          ValueError: `share` of a batch is no whole number of rows.
        """
        batch = self._rest if self._rest is not None else self._take()
        self._full = self._full or _rows(batch)
        wanted = self._full * share
        if abs(wanted - round(wanted)) > 1e-6:
            raise ValueError(f"{share:.3g} of a batch of {self._full} rows is no whole number of rows.")
        while _rows(batch) < round(wanted):
            batch = _map(_concatenate, [batch, self._take()])
        cut = round(wanted)
        self._rest = _map(lambda leaves: leaves[0][cut:], [batch]) if _rows(batch) > cut else None
        return _map(lambda leaves: leaves[0][:cut], [batch]) if self._rest is not None else batch

    def _take(self) -> Any:
        if self._count in self._kept:
            batch = self._kept[self._count]
        else:
            batch = next(self._iterator)
            if self._stateful is None:
                self._kept[self._count] = batch
        self._count += 1
        return batch


def _rows(batch: Any) -> int:
    import jax

    return int(jax.tree.leaves(batch)[0].shape[0])


def _map(function: Any, trees: Sequence[Any]) -> Any:
    import jax

    return jax.tree.map(lambda *leaves: function(leaves), *trees)


def _concatenate(leaves: Sequence[Any]) -> Any:
    import numpy as np

    return np.concatenate(leaves)
