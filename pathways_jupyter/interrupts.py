"""Defer SIGINT while a KeyboardInterrupt would be lost, or would leave Python in an inconsistent state.

Inside the import system's bookkeeping, CPython may swallow the exception and never release the import lock: the next
thread that imports anything then waits for ever. In a weakref callback, a ``__del__`` or a callback of the garbage
collector, exceptions do not propagate: Python prints the KeyboardInterrupt and continues, so the interrupt is lost.
"""

from __future__ import annotations

import _weakrefset
import contextlib
import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from types import FrameType

_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
_CALLBACK_MODULES = frozenset({weakref.__file__, _weakrefset.__file__})
_AGAIN_SECONDS = 0.005
"""Delay before a deferred signal is sent again."""


@contextlib.contextmanager
def after_imports() -> Iterator[None]:
    """Context manager: inside, an interrupt is deferred until raising it is safe.

    Does nothing in other threads than the main thread, and where SIGINT has another handler than Python's default.
    """
    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if frame is not None and (frame.f_code.co_filename == _IMPORT_SYSTEM or _is_in_callback(frame)):
        again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
        return
    raise KeyboardInterrupt


def _is_in_callback(frame: FrameType | None) -> bool:
    """Whether an exception raised in `frame` would end in a callback that Python itself called."""
    # Libraries add such callbacks at any time: JAX does when it is imported, others when they are first used.
    collector = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    # Check all callers: an exception in a function that the callback called would reach the callback.
    while frame is not None:
        code = frame.f_code
        if code.co_filename in _CALLBACK_MODULES or code.co_name == "__del__" or code in collector:
            return True
        frame = frame.f_back
    return False
