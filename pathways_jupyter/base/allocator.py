"""How this process's allocator treats freed memory. Only glibc has such options; elsewhere everything is as it was."""

from __future__ import annotations

import ctypes

# Numbers of glibc's options, from malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MB = 1024 * 1024


def keep_freed_memory(kept: int = 16 * _MB, *, mapped: int = 8 * _MB, arenas: int = 0) -> bool:
    """Keep freed memory, instead of returning it to the system and getting it back; return whether that is possible.

    The defaults suit a process through which messages of a few hundred kilobytes pass.

    Args:
      kept: Most bytes that are kept at the end of the heap.
      mapped: From this size on, memory comes from the system each time. It needs a value of its own: by the default,
        that would be all memory of more than 128 KB, once `kept` is set.
      arenas: Most arenas, if not 0: those of threads are kept in pieces of 64 MB, whatever the other values.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    libc.mallopt(_TRIM_THRESHOLD, kept)
    libc.mallopt(_MMAP_THRESHOLD, mapped)
    if arenas:
        libc.mallopt(_ARENA_MAX, arenas)
    return True


def trim() -> None:
    """Return what is kept to the system; only where :func:`keep_freed_memory` is possible."""
    ctypes.CDLL(None).malloc_trim(0)
