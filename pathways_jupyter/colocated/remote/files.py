"""Output that is too large to travel with a result: kept in files without a name, which go with this process.

A worker's disk is shared, and a sidecar may be killed at any time: nothing that has to be removed is ever left there.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections import OrderedDict
from typing import IO

_KEPT = 32
_lock = threading.Lock()
_files: OrderedDict[str, IO[bytes]] = OrderedDict()
_numbers = itertools.count(1)


def new(call: str, suffix: str) -> tuple[str, IO[bytes]]:
    """An empty file, and the name by which :func:`read` finds it; the oldest of many is dropped."""
    name = f"{call}-{next(_numbers)}{suffix}"
    file = tempfile.TemporaryFile()  # noqa: SIM115
    with _lock:
        _files[name] = file
        while len(_files) > _KEPT:
            # Not closed: its writer may still be using it, and the file closes with its last reference.
            _files.popitem(last=False)
    return name, file


def read(name: str, offset: int, size: int) -> tuple[bytes, int]:
    """A part of a file, and the size of all of it.

    Raises:
      LookupError: There is no such file any more.
    """
    with _lock:
        file = _files.get(name)
        if file is None:
            raise LookupError(f"There is no output {name} here any more.")
        whole = file.seek(0, 2)
        file.seek(offset)
        return file.read(size), whole
