"""An Interrupt that Python does not lose, nor chokes on.

Where it hits the import system's own bookkeeping, CPython may swallow it and keep the lock of all imports for ever: the
next thread that imports anything, JAX for one, then waits without end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
_AGAIN_SECONDS = 0.005


@contextlib.contextmanager
def after_imports() -> Iterator[None]:
    """Inside the block an Interrupt waits until the import system has finished what it is at.

    Does nothing on other threads than the main one, and where Interrupt means something else than KeyboardInterrupt.
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
    if frame is None or frame.f_code.co_filename != _IMPORT_SYSTEM:
        raise KeyboardInterrupt
    again = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()
