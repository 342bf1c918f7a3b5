"""Find a process's descendants, so that the demo can count those that are still running at its end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path


def family(pid: int) -> set[int]:
    """`pid` and all of its descendants."""
    children: dict[int, list[int]] = {}
    for child, parent in _processes():
        children.setdefault(parent, []).append(child)
    found, pending = set(), [pid]
    while pending:
        found.add(pending[-1])
        pending += [child for child in children.get(pending.pop(), []) if child not in found]
    return found


def is_alive(pid: int) -> bool:
    """Whether the process `pid` exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self/stat").exists()


def wait_for(pids: Iterable[int], *, timeout: float) -> set[int]:
    """Those of `pids` that have not ended within `timeout` seconds."""
    # Polling, because they are not children of this process, and not every system can wait for other processes.
    deadline = time.monotonic() + timeout
    left = set(filter(is_alive, pids))
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = set(filter(is_alive, left))
    return left


def _processes() -> Iterator[tuple[int, int]]:
    """The ids of every running process and of its parent."""
    if Path("/proc/self/stat").exists():
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                except OSError:
                    continue
                yield int(entry.name), int(stat.rpartition(")")[2].split()[1])
        return
    listed = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        child, parent = line.split()
        yield int(child), int(parent)
