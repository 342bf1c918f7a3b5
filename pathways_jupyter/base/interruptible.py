"""Wait for other threads in a way that an Interrupt at any moment leaves intact.

`threading.Condition`, and `Event` on top of it, take and release their lock in Python code. A KeyboardInterrupt between
the lock's acquisition and the ``with`` block leaves the lock taken, and every thread that needs it waits for ever: the
thread that sets the event, and the interrupted one when it waits again. Here a ``with`` statement takes and releases
the lock itself, which Python does without a gap. Whatever a notebook's main thread waits for or reports uses these.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from pathways_jupyter.base import interrupts

Value = TypeVar("Value")

_LOOK_SECONDS = 0.5
"""Longest wait in one piece.

A signal that arrives when Python has released the GIL but does not block yet is handled only after that wait. And a
thread that is interrupted between a change and its notification wakes no other.
"""


class Changes:
    """State that threads share, and waiting for its change.

    Attributes:
      lock: Protects the state: held while it is read or changed, never while waiting.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # A taken lock for each waiter, which is released to wake it.
        self._waiters: list[threading.Lock] = []

    def notify_all(self) -> None:
        """Wake all that wait; called with the lock held, after each change."""
        while self._waiters:
            # Released before it is removed: an Interrupt between the two only makes the next call release it again.
            with contextlib.suppress(RuntimeError):
                self._waiters[-1].release()
            del self._waiters[-1]

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until a condition holds; return whether it does.

        Args:
          condition: Called with the lock held.
          timeout: Seconds to wait; None waits for ever.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            waiter = threading.Lock()
            waiter.acquire()
            with self.lock:
                if condition():
                    return True
                left = _LOOK_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0.0:
                    return False
                # An Interrupt after this leaves a waiter without a thread; the next change removes it.
                self._waiters.append(waiter)
            if not waiter.acquire(timeout=min(left, _LOOK_SECONDS)):
                with self.lock, contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)


class Event:
    """A flag that other threads wait for, as :class:`threading.Event`."""

    def __init__(self) -> None:
        self._changes = Changes()
        self._is_set = False

    def is_set(self) -> bool:
        """Whether the flag is set."""
        return self._is_set

    def set(self) -> None:
        """Set the flag, and wake all that wait for it."""
        with self._changes.lock:
            self._is_set = True
            self._changes.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set; return whether it is.

        Args:
          timeout: Seconds to wait; None waits for ever.
        """
        return self._changes.wait_for(self.is_set, timeout)


def next_of(arrived: queue.SimpleQueue[Value]) -> Value:
    """Wait for the next value of a queue, and take it."""
    while True:
        with contextlib.suppress(queue.Empty):
            return arrived.get(timeout=_LOOK_SECONDS)


class SigintCounter:
    """What the main thread waits for while interrupts are counted; see :func:`count_sigint`.

    Attributes:
      count: Number of interrupts so far.
    """

    def __init__(self) -> None:
        self.count = 0
        # It has no lock that a signal's handler could find taken by the code that it has interrupted.
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wake(self) -> None:
        """Make :meth:`wait_for` look at its condition; called by any thread after it has changed something."""
        self._news.put(None)

    def wait_for(self, condition: Callable[[], object], seconds: float = math.inf) -> None:
        """Wait until a condition holds, at most for so many seconds."""
        deadline = time.monotonic() + seconds
        while not condition() and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                self._news.get(timeout=min(left, _LOOK_SECONDS))

    def _add(self) -> None:
        self.count += 1
        self._news.put(None)


@contextlib.contextmanager
def count_sigint() -> Iterator[SigintCounter]:
    """Context manager: inside, an interrupt raises nothing and is counted, for a wait that must not be left half done.

    In other threads than the main thread, which get no interrupts, none is counted.
    """
    waiting = SigintCounter()
    with interrupts.on_sigint(waiting._add):
        yield waiting
