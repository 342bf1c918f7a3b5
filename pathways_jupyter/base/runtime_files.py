"""Files by which the processes of one machine find each other: locks, and directories for unix sockets.

A process holds its lock file locked as long as it runs, and the operating system releases it however the process ends.
A process id in a file would prove nothing, because ids are reused.

A socket's path is limited to about a hundred bytes. And JAX changes ``JAX_BACKEND_TARGET`` to lower case, so that it
finds no socket whose path has capitals, except on a file system that ignores case.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

from pathways_jupyter.base.config import runtime_dir

ALIVE = "alive"
"""The file that the embedded cluster's daemon holds locked, beside the cluster's kubeconfig."""
STORAGE = "storage.json"
"""The file beside it that says how processes of this machine reach the cluster's bucket."""
KUBECONFIG = "kubeconfig"
"""The file beside it with the cluster's address and its administrator's token."""
DEFAULT_CLUSTER = "local"
"""Name of the embedded cluster where none is given."""
LOCAL_BUCKET = "pathways-local"
"""Name of the bucket of every embedded cluster."""

_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""The longest path that fits ``sun_path``, without its final NUL."""
_RANDOM = "12345678"
"""As long as what :func:`tempfile.mkdtemp` adds, which has no capitals."""


def embedded_clusters() -> Path:
    """Return the directory in which each embedded cluster has one by its name.

    Raises:
      ConfigError: The runtime directory cannot be created.
    """
    return runtime_dir() / "local"


NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of a process, or a machine, that has no descriptor left, which say nothing of the file."""


def is_held(path: Path) -> bool:
    """Return whether a process holds `path` locked; False when there is no such file.

    True where it cannot be known: what is held must not be taken for abandoned.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return error.errno in NO_DESCRIPTOR
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def read_json(path: Path) -> Any:
    """Return the content of a JSON file that another process wrote.

    Raises:
      OSError: It cannot be read, or is no file: to open a FIFO would wait for its writer, and a device has no end.
      ValueError: It is not JSON.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a file", str(path))
        return json.loads(file.read())


def write(path: Path, text: str) -> None:
    """Replace a file atomically: a reader sees the previous one or this one. Only its owner can read it.

    Raises:
      OSError: It cannot be written, for example because the disk is full; the previous one is kept.
    """
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def fingerprint(folder: Path) -> list[tuple[str, int, int]]:
    """Return a value that changes when a JSON file in `folder` is written or removed; reads none."""
    stamps = []
    with os.scandir(folder) as entries:
        for entry in entries:
            # A file may be removed between scandir() and stat().
            with contextlib.suppress(FileNotFoundError):
                if entry.name.endswith(".json"):
                    stamps.append((entry.name, entry.stat().st_mtime_ns, entry.inode()))
    return sorted(stamps)


def suits_sockets(directory: Path, below: str) -> bool:
    """Return whether sockets may be in `directory`, which exists.

    Args:
      below: The longest path that is added to it, in lower case.
    """
    return len(os.fsencode(directory / below)) <= _PATH_BYTES and _is_found_in_lower_case(directory)


def socket_directory(prefix: str, below: str) -> Path:
    """Make a new directory for sockets, with mode 0700, under the system's temporary one, or else under ``/tmp``.

    Args:
      prefix: What its name begins with, in lower case.
      below: As for :func:`suits_sockets`.
    """
    preferred = tempfile.gettempdir()
    parent = preferred if suits_sockets(Path(preferred), f"{prefix}{_RANDOM}/{below}") else "/tmp"
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))


def _is_found_in_lower_case(directory: Path) -> bool:
    lower = str(directory).lower()
    if lower == str(directory):
        return True
    try:
        return os.path.samefile(directory, lower)
    except OSError:
        return False
