"""A value that may come later.

Requests are answered in the order of what they depend on, not of their arrival: whatever a request makes is a cell at
once, and work that needs an unsettled cell is put behind it. Nobody waits on a thread for a cell.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from pathways_jupyter.local.pathways.ifrt.statuses import StatusError

# One lock for all cells: it is held for a few instructions, and a lock per cell would cost more than the waits.
_lock = threading.Lock()


class Cell:
    """Settled once, with a value or an error; only :meth:`lose` may change its mind."""

    __slots__ = ("_error", "_value", "_waiting", "settled")

    def __init__(self) -> None:
        self.settled = False
        self._value: Any = None
        self._error: StatusError | None = None
        self._waiting: list[Callable[[], None]] | None = None

    def settle(self, value: Any) -> None:
        """Gives the cell its value; does nothing when it is settled already."""
        self._finish(value, None)

    def fail(self, error: StatusError) -> None:
        """Gives the cell an error in place of a value; does nothing when it is settled already."""
        self._finish(None, error)

    def lose(self, error: StatusError) -> None:
        """Takes the value away: from now on, and for all who wait, there is `error`."""
        self._finish(None, error, again=True)

    def get(self) -> Any:
        """The value of a settled cell.

        Raises:
          StatusError: The cell holds an error.
        """
        if self._error is not None:
            raise self._error
        return self._value

    @property
    def error(self) -> StatusError | None:
        """The error, when there is one already."""
        return self._error

    def then(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once the cell is settled: at once, or on the thread that settles it."""
        with _lock:
            if not self.settled:
                if self._waiting is None:
                    self._waiting = []
                self._waiting.append(callback)
                return
        callback()

    def _finish(self, value: Any, error: StatusError | None, *, again: bool = False) -> None:
        with _lock:
            if self.settled and not (again and self._error is None):
                return
            self._value, self._error = value, error
            self.settled = True
            waiting, self._waiting = self._waiting, None
        if waiting:
            _turns.run(waiting)


def settled(value: Any) -> Cell:
    """A cell that has its value already."""
    cell = Cell()
    cell.settle(value)
    return cell


def failed(error: StatusError) -> Cell:
    """A cell that holds an error already."""
    cell = Cell()
    cell.fail(error)
    return cell


def when_all(cells: Iterable[Cell], callback: Callable[[], object]) -> None:
    """Calls `callback` once every one of `cells` is settled, whatever with."""
    pending = [cell for cell in cells if not cell.settled]
    if not pending:
        callback()
        return
    left = len(pending)

    def one_less() -> None:
        nonlocal left
        with _lock:
            left -= 1
            last = left == 0
        if last:
            callback()

    for cell in pending:
        cell.then(one_less)


class _Turns(threading.local):
    """Runs callbacks one after the other: settling a chain of a thousand cells must not nest a thousand calls."""

    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] | None = None

    def run(self, callbacks: Iterable[Callable[[], None]]) -> None:
        if self._queue is not None:
            self._queue.extend(callbacks)
            return
        self._queue = deque(callbacks)
        try:
            while self._queue:
                self._queue.popleft()()
        finally:
            self._queue = None


_turns = _Turns()
