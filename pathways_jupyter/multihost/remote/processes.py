"""Find and end the processes of a run on a host."""

from __future__ import annotations

import contextlib
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MARK = "PATHWAYS_MULTIHOST_RUN"
"""The environment variable by which the processes of a run are recognized, however they detached themselves."""
_POLL_SECONDS = 0.05
_KILL_SECONDS = 5.0


def of_run(run: str) -> set[int]:
    """Return the processes that carry the mark of a run."""
    mark = f"{MARK}={run}".encode()
    pids = set()
    for pid in _all():
        with contextlib.suppress(OSError):
            if _runs(pid) and mark in _read(f"/proc/{pid}/environ").split(b"\0"):
                pids.add(pid)
    return pids - {os.getpid()}


def descendants() -> set[int]:
    """Return all descendants of this process that run."""
    children: dict[int, list[int]] = {}
    for pid in _all():
        with contextlib.suppress(OSError, IndexError):
            parent = int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(pid)
    pids, waiting = set(), [os.getpid()]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            waiting.append(child)
            if _runs(child):
                pids.add(child)
    return pids


def holders(devices: Iterable[str]) -> dict[int, str]:
    """Return the commands of the processes that have a device open whose path begins like one of `devices`, by pid.

    Those of other users are seen by root alone.
    """
    beginnings = tuple(devices)
    # Most hosts have no such device, and are not searched.
    folders = {os.path.dirname(each) for each in beginnings}
    there = [f"{folder}/{name}" for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)]
    by_directory: dict[int, str] = {}
    if not any(each.startswith(beginnings) for each in there):
        return by_directory
    for pid in _all():
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            opened = (os.readlink(f"/proc/{pid}/fd/{each}") for each in os.listdir(f"/proc/{pid}/fd"))
            if _runs(pid) and any(each.startswith(beginnings) for each in opened):
                by_directory[pid] = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return by_directory


def end(find: Callable[[], Iterable[int]], grace: float, between: Callable[[], object] = lambda: None) -> None:
    """End the processes that `find` returns: SIGTERM to those that run now, after `grace` seconds SIGKILL to all.

    What a handler of SIGTERM starts, for instance to copy a checkpoint, gets no SIGTERM: it has the rest of the grace.

    Args:
      between: Called between two looks, for instance to read what they still print.
    """
    kill_at = time.monotonic() + grace
    give_up_at = kill_at + _KILL_SECONDS
    warned = False
    while pids := set(find()):
        now = time.monotonic()
        if now > give_up_at:
            return
        if now >= kill_at or not warned:
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL if now >= kill_at else signal.SIGTERM)
        warned = True
        between()
        time.sleep(_POLL_SECONDS)


def _runs(pid: int) -> bool:
    try:
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] not in {b"Z", b"X"}
    except (OSError, IndexError):
        return False


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
