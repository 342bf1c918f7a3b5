"""Prepare a process at its start: standard streams, certificates, and what its allocator does with freed memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

# Numbers of glibc's options, from malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MB = 1024 * 1024


def open_closed_streams() -> None:
    """Open standard streams that the caller has closed (``2>&-``) on the null device.

    Python has None in their place then, and the next file or socket would get their number, which programs that are
    started from here would take for their own stream. And print() takes None for standard output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        # The lowest number that is free; another one if Python itself has taken this one meanwhile.
        opened = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(opened, opened == number)
        setattr(sys, name, os.fdopen(opened, "w" if number else "r", encoding="utf-8"))


@contextlib.contextmanager
def without_certificates() -> Iterator[None]:
    """Keep aiohttp from loading the system's certificates, which it does twice when it is imported.

    That takes longer than a third of the rest of its import. For programs whose every connection has TLS settings of
    its own: what is imported here trusts no server by default.
    """
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = os.devnull
    try:
        yield
    finally:
        del os.environ["SSL_CERT_FILE"]
        if before is not None:
            os.environ["SSL_CERT_FILE"] = before


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
