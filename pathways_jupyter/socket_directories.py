"""Choose directories for unix sockets that every client can connect to.

A socket's path is limited to about a hundred bytes. And JAX changes ``JAX_BACKEND_TARGET`` to lower case, so that it
finds no socket whose path has capitals, except on a file system that ignores case.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""The longest path that fits ``sun_path``, without its final NUL."""
_RANDOM = "12345678"
"""As long as what :func:`tempfile.mkdtemp` adds, which has no capitals."""


def fits(directory: Path, below: str) -> bool:
    """Return whether sockets may be in `directory`, which exists.

    Args:
      below: The longest path that is added to it, in lower case.
    """
    return len(os.fsencode(directory / below)) <= _PATH_BYTES and _is_found_in_lower_case(directory)


def temporary(prefix: str, below: str) -> Path:
    """Make a new directory for sockets, with mode 0700, under the system's temporary one, or else under ``/tmp``.

    Args:
      prefix: What its name begins with, in lower case.
      below: As for :func:`fits`.
    """
    preferred = tempfile.gettempdir()
    parent = preferred if fits(Path(preferred), f"{prefix}{_RANDOM}/{below}") else "/tmp"
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))


def _is_found_in_lower_case(directory: Path) -> bool:
    lower = str(directory).lower()
    if lower == str(directory):
        return True
    try:
        return os.path.samefile(directory, lower)
    except OSError:
        return False
