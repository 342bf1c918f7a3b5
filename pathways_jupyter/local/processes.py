"""What the operating system offers so that no process outlives the cluster that started it.

Process groups reach what stays in its group; Linux adds two things that the fork server and the daemon rely on where
they exist: a signal at the parent's death, and the adoption of orphans by the nearest ancestor that asks for it.
Without them (macOS) the pipes and groups still end everything that did not leave its group on purpose.
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
    """Makes orphaned descendants children of this process, so that :func:`children` lists them."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> bool:
    """Has the kernel kill this process when `parent` dies; ends at once when that has happened already.

    Returns:
      Whether the system can do so.
    """
    if _libc is None:
        return False
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return True


def survive_parent() -> None:
    """Takes back :func:`die_with`."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def set_name(name: str) -> None:
    """Names this process for ``top`` and ``ps -o comm``; the kernel keeps 15 bytes."""
    if _libc is not None:
        _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def children() -> list[int]:
    """The processes whose parent is this one, adopted orphans included; empty where /proc does not tell."""
    try:
        return [int(pid) for pid in Path("/proc/thread-self/children").read_text(encoding="ascii").split()]
    except OSError:
        return []


def environment_of(pid: int) -> bytes:
    """The environment `pid` was started with, as NUL-terminated assignments; empty where it cannot be read."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def threads() -> int:
    """Threads of this process, those of C libraries included; 1 where /proc does not tell."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def signal_group(group: int, number: int) -> None:
    """Sends a signal to a process group, which may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def kill_children(*, spare: frozenset[int] = frozenset()) -> None:
    """Kills and reaps every child of this process but `spare`, and whatever they leave behind."""
    while doomed := [pid for pid in children() if pid not in spare]:
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in doomed:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
