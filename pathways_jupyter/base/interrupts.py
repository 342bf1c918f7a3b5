"""Interrupts that leave nothing half done: shared state that survives a KeyboardInterrupt, and SIGINT as a count.

`threading.Condition`, and `Event` on top of it, take and release their lock in Python code. A KeyboardInterrupt between
the lock's acquisition and the ``with`` block leaves the lock taken, and every thread that needs it waits for ever: the
thread that sets the event, and the interrupted one when it waits again. In :class:`Changes` a ``with`` statement takes
and releases the lock itself, which Python does without a gap.

Where a KeyboardInterrupt between any two steps would leave something half done, such as a proxy without an owner or a
module half imported, :func:`count_sigint` counts interrupts instead. They act where it is safe: when a wait for
:class:`Changes` ends, and wherever :func:`raise_if_interrupted` is called.

The same where we print. ipykernel's streams wait for their thread in Python code, so that a KeyboardInterrupt there can
cut the kernel off; one inside ``Thread.is_alive()`` or ``join()`` marks a living thread as ended up to Python 3.12
(python/cpython#90882); and one inside JAX's garbage collector's callback is dropped (jax-ml/jax#18246). So all that
prints runs in :func:`defer_sigint`, and what is not ours and waits, in :func:`raise_sigint`.
"""

from __future__ import annotations

import contextlib
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


class InterruptibleEvent:
    """A flag that other threads wait for, as :class:`threading.Event`."""

    def __init__(self) -> None:
        self._changes = Changes()
        self._is_set = False

    def is_set(self) -> bool:
        """Return whether the flag is set."""
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


@dataclass
class _Interrupt:
    """One interrupt, in the lists of all blocks that have counted it."""

    taken: bool = False


class SigintCounter:
    """Interrupts counted while the main thread waits; see :func:`count_sigint`."""

    def __init__(self) -> None:
        # Neither has a lock that a signal's handler could find taken by the code that it has interrupted.
        self._interrupts: list[_Interrupt] = []
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def count(self) -> int:
        """Number of interrupts that nothing has acted on yet."""
        return sum(not each.taken for each in self._interrupts)

    def take(self) -> int:
        """Return the number of interrupts, on which the caller acts; also after the block."""
        new = [each for each in self._interrupts if not each.taken]
        for each in new:
            each.taken = True
        return len(new)

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
        self._interrupts.append(_Interrupt())
        self._news.put(None)


@contextlib.contextmanager
def count_sigint(*, cleanup: bool = False) -> Iterator[SigintCounter]:
    """Context manager: inside, an interrupt raises nothing by itself and is counted.

    Waits inside look at this block's count only, so one that the block around has counted is raised at the beginning.
    An interrupt that was raised or taken is no longer counted; what is left at the end goes to the block around. In
    other threads than the main thread, which get no interrupts, and where SIGINT has another handler than Python's
    default, none is counted.

    Args:
      cleanup: Raise nothing at the beginning: what led here does not end the clean-up, but the next interrupt does.

    Raises:
      KeyboardInterrupt: The block around has counted an interrupt.
    """
    before, outer, counter = signal.getsignal(signal.SIGINT), _innermost(), SigintCounter()
    if not _is_main() or (outer is None and before is not signal.default_int_handler):
        yield counter
        return
    try:
        signal.signal(signal.SIGINT, counter._handle)
        # No more can be counted there now.
        if outer is not None and not cleanup and outer.take():
            raise KeyboardInterrupt
        yield counter
    finally:
        signal.signal(signal.SIGINT, before)
        if outer is not None:
            outer._interrupts.extend(counter._interrupts)


@contextlib.contextmanager
def defer_sigint() -> Iterator[None]:
    """Context manager: as :func:`count_sigint`, and what no wait inside has raised is raised at the end.

    For what prints: an interrupt ends a wait, or the block, but never a line that is being written.

    Raises:
      KeyboardInterrupt: Interrupted.
    """
    with count_sigint() as counter:
        yield
    if counter.take():
        raise KeyboardInterrupt


@contextlib.contextmanager
def raise_sigint() -> Iterator[None]:
    """Context manager: inside a block that counts interrupts, raise them at once again, as Python does.

    For code that is not ours and may wait: the user's own, an answer that is typed, another library's requests.
    """
    counter = _innermost() if _is_main() else None
    if counter is None:
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # One that came before; no more can be counted now.
        if counter.take():
            raise KeyboardInterrupt
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if an interrupt was counted in the innermost :func:`count_sigint`."""
    counter = _innermost()
    if counter is not None and _is_main() and counter.take():
        raise KeyboardInterrupt


def _innermost() -> SigintCounter | None:
    # Only the handler itself says whether interrupts are counted: one may arrive between any two lines above.
    handler = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return handler if isinstance(handler, SigintCounter) else None


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
