"""Interrupts that leave nothing half done: shared state that survives a KeyboardInterrupt, and SIGINT as a count.

`threading.Condition`, and `Event` on top of it, take and release their lock in Python code. A KeyboardInterrupt between
the lock's acquisition and the ``with`` block leaves the lock taken, and every thread that needs it waits for ever: the
thread that sets the event, and the interrupted one when it waits again. In :class:`Changes` a ``with`` statement takes
and releases the lock itself, which Python does without a gap.

Where a KeyboardInterrupt between any two steps would leave something half done, such as a proxy without an owner or a
module half imported, :func:`count_sigint` counts interrupts instead. They act where it is safe: when a wait for
:class:`Changes` ends, and wherever :func:`raise_if_interrupted` is called.
"""

from __future__ import annotations

import contextlib
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

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

        Raises:
          KeyboardInterrupt: Interrupts are counted here, and there was one.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            raise_if_interrupted()
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


def next_of(arrived: queue.SimpleQueue[Value], seconds: float = math.inf) -> Value:
    """Wait for the next value of a queue, and take it.

    Raises:
      TimeoutError: None came within `seconds`.
      KeyboardInterrupt: Interrupts are counted here, and there was one.
    """
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        raise_if_interrupted()
        with contextlib.suppress(queue.Empty):
            return arrived.get(timeout=min(left, _LOOK_SECONDS))
    raise TimeoutError


class SigintCounter:
    """What the main thread waits for while interrupts are counted; see :func:`count_sigint`.

    Attributes:
      count: Number of interrupts so far.
    """

    def __init__(self, outer: SigintCounter | None = None) -> None:
        self.count = 0
        self._outer = outer
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

    def _handle(self, *_: object) -> None:
        self.count += 1
        self._news.put(None)
        if self._outer is not None:
            self._outer._handle()


@contextlib.contextmanager
def count_sigint() -> Iterator[SigintCounter]:
    """Context manager: inside, an interrupt raises nothing by itself and is counted, here and in the blocks around.

    Waits inside look at this block's count only. So clean-up after an interrupt, in a block of its own, is not ended by
    that interrupt, but by the next one. In other threads than the main thread, which get no interrupts, and where
    SIGINT has another handler than Python's default, none is counted.
    """
    before, outer = signal.getsignal(signal.SIGINT), _innermost()
    counter = SigintCounter(outer)
    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or (outer is None and before is not signal.default_int_handler):
        yield counter
        return
    try:
        signal.signal(signal.SIGINT, counter._handle)
        yield counter
    finally:
        signal.signal(signal.SIGINT, before)


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if an interrupt was counted in the innermost :func:`count_sigint`."""
    counter = _innermost()
    if counter is not None and counter.count and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def _innermost() -> SigintCounter | None:
    # Only the handler itself says whether interrupts are counted: one may arrive between any two lines above.
    found = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return found if isinstance(found, SigintCounter) else None
