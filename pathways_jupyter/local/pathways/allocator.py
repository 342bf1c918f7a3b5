"""What becomes of the memory of freed arrays: the proxy keeps it for the next ones, and returns it when idle.

By default glibc returns the memory of a large array at once. A training step, which frees as much as it allocates,
then has the kernel clear all of it again: page faults were 40 % of the CPU of a step that writes 300 MB.
"""

from __future__ import annotations

import threading
import time

from pathways_jupyter import heap

_LARGEST = 2**31 - 1
_LOOK_SECONDS = 5.0
_IDLE_SHARE = 0.05
"""Of one core: a process that used less has nothing to compute."""


def keep_freed_memory() -> None:
    """Keep freed memory in this process while it computes; no-op where the C library has no such options."""
    # One arena, because the others give up their memory in pieces.
    if heap.keep_freed_memory(_LARGEST, mapped=_LARGEST, arenas=1):
        threading.Thread(target=_trim_when_idle, name="malloc-trim", daemon=True).start()


def _trim_when_idle() -> None:
    while True:
        before = time.process_time()
        time.sleep(_LOOK_SECONDS)
        if time.process_time() - before < _IDLE_SHARE * _LOOK_SECONDS:
            heap.trim()
