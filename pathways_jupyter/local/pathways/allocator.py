"""What becomes of the memory of freed arrays: the proxy keeps it for the next ones, and returns it when idle.

By default glibc returns the memory of a large array at once. A training step, which frees as much as it allocates,
then has the kernel clear all of it again: page faults were 40 % of the CPU of a step that writes 300 MB.
"""

from __future__ import annotations

import ctypes
import threading
import time

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Names of options of glibc's mallopt(3)."""
_LARGEST = 2**31 - 1
_LOOK_SECONDS = 5.0
_IDLE_SHARE = 0.05
"""Of one core: a process that used less has nothing to compute."""


def keep_freed_memory() -> None:
    """Keep freed memory in this process while it computes; no-op where the C library has no such options."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        return
    # One arena, because the others give up their memory in pieces of 64 MB, whatever the options say.
    for option, value in ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, _LARGEST), (_M_TRIM_THRESHOLD, _LARGEST)):
        libc.mallopt(option, value)
    threading.Thread(target=_trim_when_idle, args=(libc,), name="malloc-trim", daemon=True).start()


def _trim_when_idle(libc: ctypes.CDLL) -> None:
    while True:
        before = time.process_time()
        time.sleep(_LOOK_SECONDS)
        if time.process_time() - before < _IDLE_SHARE * _LOOK_SECONDS:
            libc.malloc_trim(0)
