"""What this process keeps from call to call: objects that a notebook has a handle to, and large output.

Output that is too large to travel with a result is in files without a name, which go with this process. A worker's disk
is shared, and a sidecar may be killed at any time: nothing that has to be removed is ever left there.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import IO, Any

_objects_lock = threading.Lock()
_objects: dict[str, Any] = {}

_KEPT_FILES = 32
_files_lock = threading.Lock()
_files: OrderedDict[str, IO[bytes]] = OrderedDict()
_numbers = itertools.count(1)


def add(key: str, value: Any) -> None:
    """Keeps `value` until it is released."""
    with _objects_lock:
        _objects[key] = value


def get(key: str) -> Any:
    """The object.

    Raises:
      LookupError: It is not here: the sidecar restarted, or the session was reconnected, since it was made.
    """
    with _objects_lock:
        if key not in _objects:
            raise LookupError(
                "This object is not on this host any more: the sidecar restarted, or the session was reconnected."
            )
        return _objects[key]


def release(keys: Iterable[str]) -> None:
    """Drops objects; what has a ``close`` is closed."""
    for key in keys:
        with _objects_lock:
            dropped = _objects.pop(key, None)
        close = getattr(dropped, "close", None)
        if isinstance(dropped, Closing) and callable(close):
            close()


class Closing:
    """An object of this package that has something to stop when it is released."""

    def close(self) -> None:
        """Stops it."""


def new_file(call: str, suffix: str) -> tuple[str, IO[bytes]]:
    """An empty file, and the name by which :func:`read_file` finds it; the oldest of many is dropped."""
    name = f"{call}-{next(_numbers)}{suffix}"
    file = tempfile.TemporaryFile()  # noqa: SIM115
    with _files_lock:
        _files[name] = file
        while len(_files) > _KEPT_FILES:
            # Not closed: its writer may still be using it, and the file closes with its last reference.
            _files.popitem(last=False)
    return name, file


def read_file(name: str, offset: int, size: int) -> tuple[bytes, int]:
    """A part of a file, and the size of all of it.

    Raises:
      LookupError: There is no such file any more.
    """
    with _files_lock:
        file = _files.get(name)
        if file is None:
            raise LookupError(f"There is no output {name} here any more.")
        whole = file.seek(0, 2)
        file.seek(offset)
        return file.read(size), whole
