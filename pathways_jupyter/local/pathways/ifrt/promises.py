"""A value that may come later.

Requests are answered in the order of their dependencies, not of their arrival: the result of a request is a promise at
once, and work that needs an unsettled promise becomes a callback of it. No thread blocks on a promise.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from pathways_jupyter.local.pathways.ifrt.statuses import IfrtStatusError

# One lock for all promises: it is held for a few instructions, so a lock each would cost more than the contention.
# Callbacks never run while it is held, because they settle other promises.
_lock = threading.Lock()


class Promise:
    """Settled once, with a value or an error; only :meth:`lose` can replace the value afterwards."""

    __slots__ = ("_error", "_value", "_waiting", "settled")

    def __init__(self) -> None:
        self.settled = False
        self._value: Any = None
        self._error: IfrtStatusError | None = None
        self._waiting: list[Callable[[], None]] | None = None

    def settle(self, value: Any) -> None:
        """Set the value; no-op if it is settled already."""
        self._finish(value, None)

    def fail(self, error: IfrtStatusError) -> None:
        """Set an error instead of a value; no-op if it is settled already."""
        self._finish(None, error)

    def lose(self, error: IfrtStatusError) -> None:
        """Replace the value by `error`, for waiting callbacks and all later reads."""
        self._finish(None, error, again=True)

    def get(self) -> Any:
        """Return the value of a settled promise.

        Raises:
          IfrtStatusError: The promise holds an error.
        """
        if self._error is not None:
            # A new one each time: the traceback of one that is raised again and again only grows.
            raise self._error.bare()
        return self._value

    @property
    def error(self) -> IfrtStatusError | None:
        """The error, if there is one yet."""
        return self._error

    def then(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the promise is settled: immediately, or on the thread that settles it."""
        with _lock:
            if not self.settled:
                if self._waiting is None:
                    self._waiting = []
                self._waiting.append(callback)
                return
        callback()

    def _finish(self, value: Any, error: IfrtStatusError | None, *, again: bool = False) -> None:
        with _lock:
            if self.settled and not (again and self._error is None):
                return
            self._value, self._error = value, error
            self.settled = True
            waiting, self._waiting = self._waiting, None
        if waiting:
            _turns.run(waiting)


def settled(value: Any) -> Promise:
    """Make a promise that has its value already."""
    promise = Promise()
    promise.settle(value)
    return promise


def failed(error: IfrtStatusError) -> Promise:
    """Make a promise that holds an error already."""
    promise = Promise()
    promise.fail(error)
    return promise


def when_all(promises: Iterable[Promise], callback: Callable[[], object]) -> None:
    """Call `callback` once all of `promises` are settled, with values or errors."""
    pending = [promise for promise in promises if not promise.settled]
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

    for promise in pending:
        promise.then(one_less)


def all_of(promises: Sequence[Promise]) -> Promise:
    """Settled when all of `promises` are, or as soon as one of them has an error: with that error."""
    if len(promises) == 1:
        return promises[0]
    together = Promise()

    def check(promise: Promise) -> None:
        if promise.error is not None:
            together.fail(promise.error)

    for each in promises:
        each.then(partial(check, each))
    when_all(promises, lambda: together.settle(None))
    return together


class _Turns(threading.local):
    """Callbacks that run one after the other, so that settling a long chain of promises does not nest calls.

    Per thread: the outermost call on a thread drains the queue, and nested calls only append to it.
    """

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
