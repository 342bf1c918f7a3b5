"""Lock files that show whether a process is alive.

The process holds the lock as long as it runs, and the operating system releases it however the process ends. A process
id in a file would prove nothing, because ids are reused.
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
