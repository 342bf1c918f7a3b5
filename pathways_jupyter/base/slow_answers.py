"""Lines about long waits: code far below a command knows for whom it waits, and only the command's shell can say it.

Nothing is said of a short wait, nor by a process without a shell.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

SECONDS = 2.0
"""Time in which an answer comes unless who is asked is stopped, far away or very busy."""

_say: Callable[[str], None] | None = None


@contextlib.contextmanager
def said_by(say: Callable[[str], None]) -> Iterator[None]:
    """Context manager: meanwhile call `say`, from another thread, with a line for each that is waited for."""
    global _say
    lock, waited_for = threading.Lock(), set()

    def once(line: str) -> None:
        with lock:
            if line not in waited_for:
                waited_for.add(line)
                say(line)

    before, _say = _say, once
    try:
        yield
    finally:
        _say = before


@contextlib.contextmanager
def waiting_for(whom: str) -> Iterator[None]:
    """Context manager over a wait for an answer of `whom`."""
    if _say is None:
        yield
        return
    timer = threading.Timer(SECONDS, _say, [f"Waiting for an answer of {whom} …"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
