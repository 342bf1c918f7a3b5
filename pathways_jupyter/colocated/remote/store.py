"""What this process keeps from call to call: objects that a notebook has a handle to, and large output.

Output that is too large to travel with a result is in files without a name, which go with this process. A worker's disk
is shared, and a sidecar may be killed at any time: nothing that has to be removed is ever left there.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections import OrderedDict
from typing import IO, Any

objects: dict[str, Any] = {}
"""By the keys of their handles."""

_MAX_FILES = 32
_lock = threading.Lock()
_files: OrderedDict[str, IO[bytes]] = OrderedDict()
_numbers = itertools.count(1)


def get(key: str) -> Any:
    """Return an object.

    Raises:
      LookupError: It is not here: the sidecar restarted, or the session was reconnected, since it was made.
    """
    try:
        return objects[key]
    except KeyError:
        raise LookupError(
            "This object is not on this host any more: the sidecar restarted, or the session was reconnected."
        ) from None


def new_file(call: str, suffix: str) -> tuple[str, IO[bytes]]:
    """Return an empty file, and its name for :func:`read_file`; the oldest of many is dropped."""
    name = f"{call}-{next(_numbers)}{suffix}"
    file = tempfile.TemporaryFile()  # noqa: SIM115
    with _lock:
        _files[name] = file
        while len(_files) > _MAX_FILES:
            # Not closed: its writer may still be using it, and the file closes with its last reference.
            _files.popitem(last=False)
    return name, file


def read_file(name: str, offset: int, size: int) -> tuple[bytes, int]:
    """Return a part of a file, and the size of all of it.

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
