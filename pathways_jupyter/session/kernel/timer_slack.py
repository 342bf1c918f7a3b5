"""Let the threads of JAX's client sleep longer, so that a connected program which computes nothing uses no CPU.

One of gRPC's threads sleeps 50 microseconds at a time for as long as the client exists: some 5,000 wake-ups a second, 5
to 9 % of a core. Data that arrives wakes other threads, so only gRPC's own timers come later if this one sleeps longer.
Linux lets a thread say how late its timers may be, and the threads that it starts inherit that.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator

_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30
"""Names of operations of Linux's prctl(2)."""
_SLACK_NANOSECONDS = 5_000_000
"""An idle kernel uses 2 % of a core with 1 ms, 0.5 % with 5 ms and 0.2 % with 20 ms; a tiny operation takes as long."""


@contextlib.contextmanager
def inherited() -> Iterator[None]:
    """Allow timers to be late on this thread inside the block, and on the threads that it starts for good.

    No-op on systems other than Linux.
    """
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    before = prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0)
    prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_SLACK_NANOSECONDS), 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(before), 0, 0, 0)
