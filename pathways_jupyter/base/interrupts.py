"""Defer SIGINT while a KeyboardInterrupt would be lost, or would leave Python in an inconsistent state.

Inside the import system's bookkeeping, CPython may swallow the exception and never release the import lock: the next
thread that imports anything then waits for ever. In a weakref callback, a ``__del__`` or a callback of the garbage
collector, exceptions do not propagate: Python prints the KeyboardInterrupt and continues, so the interrupt is lost.
Not all such code can be recognized by its frames, so what Python would print is noticed too. And a wait for a
condition, such as an Event's, that is interrupted while it changes its lock releases that once more: a RuntimeError.
"""

from __future__ import annotations

import _weakrefset
import contextlib
import gc
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType

_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
_CALLBACK_MODULES = frozenset({weakref.__file__, _weakrefset.__file__})
_LOCK_CHANGES = frozenset({(threading.__file__, "_release_save"), (threading.__file__, "_acquire_restore")})
_AGAIN_SECONDS = 0.005
"""Delay before a deferred signal is sent again."""
_NEXT_SECONDS = 0.1
"""Delay before each further time."""

_deferred: object | None = None
"""Identifies the interrupt that is deferred, until it is raised.

Not an Event: its lock is not reentrant, and the handler may be interrupted by itself.
"""


@contextlib.contextmanager
def after_imports() -> Iterator[None]:
    """Context manager: inside, an interrupt is deferred until raising it is safe.

    Does nothing in other threads than the main thread, and where SIGINT has another handler than Python's default.
    """
    global _deferred
    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    unraisable = sys.unraisablehook
    sys.unraisablehook = noticing = _NoticingLostInterrupts(unraisable)
    try:
        yield
    finally:
        if sys.unraisablehook is noticing:
            sys.unraisablehook = unraisable
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if _deferred is not None:
            _deferred = None
            raise KeyboardInterrupt


@contextlib.contextmanager
def on_sigint(callback: Callable[[], object]) -> Iterator[None]:
    """Context manager: inside, an interrupt calls `callback` and raises nothing.

    For code that an exception at any point would leave half done. Works inside :func:`after_imports` too, and like that
    does nothing in other threads and where SIGINT has a handler that is not known here.

    Args:
      callback: Called by the main thread between any two steps of its own, so it must not take a lock.
    """
    on_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not on_main or before not in (signal.default_int_handler, _interrupt):
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: callback())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _deferred
    if frame is not None and (frame.f_code.co_filename == _IMPORT_SYSTEM or _is_indivisible(frame)):
        _defer(number)
        return
    _deferred = None
    raise KeyboardInterrupt


def _defer(number: int) -> None:
    global _deferred
    if _deferred is None:
        _deferred = object()
        threading.Thread(target=_send_again, args=(number, _deferred), name="deferred-interrupt", daemon=True).start()


class _NoticingLostInterrupts:
    """A ``sys.unraisablehook`` that defers an interrupt which Python would only print."""

    def __init__(self, otherwise: Callable[[sys.UnraisableHookArgs], object]) -> None:
        self._otherwise = otherwise

    def __call__(self, unraisable: sys.UnraisableHookArgs) -> None:
        on_main = threading.current_thread() is threading.main_thread()
        # Another hook may have been put around this one, and keep it beyond its time.
        deferring = on_main and signal.getsignal(signal.SIGINT) is _interrupt
        if deferring and issubclass(unraisable.exc_type, KeyboardInterrupt):
            _defer(signal.SIGINT)
        else:
            self._otherwise(unraisable)


def _send_again(number: int, deferred: object) -> None:
    """Send a deferred signal until the main thread has raised it.

    Once is not enough: if the signal arrives when the main thread has released the GIL but does not block yet, Python
    notes it and blocks anyway, and handles it only when that wait ends. The next signal ends the wait.
    """
    main = threading.main_thread().ident
    pause = _AGAIN_SECONDS
    while True:
        time.sleep(pause)
        # Long enough for the main thread to handle the signal, which would interrupt it twice otherwise.
        pause = _NEXT_SECONDS
        if main is None or _deferred is not deferred or signal.getsignal(number) is not _interrupt:
            return
        signal.pthread_kill(main, number)


def _is_indivisible(frame: FrameType | None) -> bool:
    """Whether an exception raised in `frame` would end in a callback that Python itself called, or break a lock."""
    # Libraries add such callbacks at any time: JAX does when it is imported, others when they are first used.
    codes = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    codes.add(_NoticingLostInterrupts.__call__.__code__)
    # Check all callers: an exception in a function that the callback called would reach the callback.
    while frame is not None:
        code = frame.f_code
        if code.co_filename in _CALLBACK_MODULES or code.co_name == "__del__" or code in codes:
            return True
        if (code.co_filename, code.co_name) in _LOCK_CHANGES:
            return True
        frame = frame.f_back
    return False
