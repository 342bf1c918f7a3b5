"""How the supervisor's allocator treats freed memory."""

from __future__ import annotations

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 16 * 1024 * 1024
_MAPPED_BYTES = 8 * 1024 * 1024


def keep_freed_memory() -> None:
    """Have glibc keep up to 16 MB of freed memory, instead of returning it to the system and getting it back.

    Messages of 256 KB come and go here. By chance of what lies behind them, up to 150 pages for each megabyte of them
    were returned, fetched again, and filled with zeros: a tenth of the work for a megabyte down. Other C libraries,
    and macOS, are left as they are.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        # Without this one, memory of more than 128 KB would now come from the system each time.
        mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)
