"""Files that a process holds locked for as long as it lives, which is how others know that it does.

The operating system releases the lock when the process ends, however it ends; a process id in a file proves nothing.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

ALIVE = "alive"
"""The file that the embedded cluster's daemon holds locked, beside the cluster's kubeconfig."""


def is_held(path: Path) -> bool:
    """Whether a process holds `path` locked; False when there is no such file."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
