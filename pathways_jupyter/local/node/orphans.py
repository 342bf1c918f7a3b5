"""Operating-system calls that keep a process from outliving the cluster that started it.

Process groups reach what stays in its group; Linux adds two things that the fork server and the daemon rely on where
they exist: a signal when the parent dies, and adoption of orphans by the nearest ancestor that asks for it.
Without them (macOS), pipes and process groups still end every process that did not leave its group on purpose.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform.startswith("linux")
_libc = ctypes.CDLL(None, use_errno=True) if _LINUX else None


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, so that :func:`children` lists them."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> bool:
    """Have the kernel kill this process when `parent` dies; end at once when that has happened already.

    Returns:
      Whether the system can do so.
    """
    if _libc is None:
        return False
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have died before prctl took effect, in which case no signal will come.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return True


def survive_parent() -> None:
    """Undo :func:`die_with`."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def set_name(name: str) -> None:
    """Name this process for ``top`` and ``ps -o comm``; the kernel keeps 15 bytes."""
    if _libc is not None:
        _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def children() -> list[int]:
    """Return the processes whose parent is this one, adopted orphans included; empty where /proc does not say."""
    try:
        return [int(pid) for pid in Path("/proc/thread-self/children").read_text(encoding="ascii").split()]
    except OSError:
        return []


def threads() -> int:
    """Count the threads of this process, those of C libraries included; 1 where /proc does not say."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def kill_group(group: int) -> None:
    """Kill a process group, which may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def kill_children() -> None:
    """Kill and reap every child of this process, and the orphans that they leave."""
    # Repeat: a killed child's own children become ours, and have to be killed as well.
    while doomed := children():
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in doomed:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
