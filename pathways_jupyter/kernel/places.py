"""Files that say where this machine's kernels beside the chips are, one for each, as long as its near end runs.

The near end writes its file and holds it locked; the server extension shows what is in it: the cluster, why the pod
waits, how a kernel has ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pathways_jupyter.base import runtime_files
from pathways_jupyter.base.config import runtime_dir

_ENDED_SECONDS = 3600.0
"""Time for which the reason of an end stays readable."""


@dataclass(frozen=True)
class KernelPlace:
    """The place of one kernel.

    Attributes:
      kernel_id: Jupyter's id.
      lab: Name of the lab.
      pod: Name of its pod; empty while there is none.
      cluster: Its name, for people.
      where: The settings that name the cluster from this machine.
      ready: Whether the kernel runs.
      message: What it waits for, or why it has ended, as a sentence; empty while there is nothing to say.
      note: What was sent of the notebook's folder, and what was not, as sentences.
      failed: Whether it has ended without being asked to.
      at: When that was written, in seconds since the epoch.
    """

    kernel_id: str
    lab: str
    cluster: str = ""
    pod: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    ready: bool = False
    message: str = ""
    note: str = ""
    failed: bool = False
    at: float = 0.0


def directory() -> Path:
    """Return the directory of these files, which exists."""
    path = runtime_dir() / "kernels"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


class PlaceFile:
    """The file of one kernel, held as long as this process lives."""

    def __init__(self, place: KernelPlace) -> None:
        self.place = place
        self._data = b""
        self._path = directory() / f"{place.kernel_id}.json"
        # Another file than that of the kernel's last process, which may still be about to remove its own.
        self._path.unlink(missing_ok=True)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.update()

    def update(self, **changes: Any) -> None:
        """Change the file; a full disk costs what it says, not the kernel."""
        self.place = dataclasses.replace(self.place, at=time.time(), **changes)
        # Never shorter, so that one write replaces all of it: a reader sees this or what was before.
        self._data = json.dumps(dataclasses.asdict(self.place)).encode().ljust(len(self._data))
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, self._data, 0)

    def close(self) -> None:
        """Remove the file, unless it says why the kernel has failed."""
        if not self.place.failed:
            # Another near end has it already, if the kernel was restarted.
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(self._descriptor), self._path.stat()):
                    self._path.unlink()
        os.close(self._descriptor)


def read() -> list[KernelPlace]:
    """Return the kernels beside the chips of this machine, and remove the files of those that are gone."""
    found = []
    for lock in directory().glob("*.lock"):
        if not runtime_files.is_held(lock):
            # Of a near end that was killed.
            for each in (lock, lock.with_suffix(".log"), lock.with_suffix(".sock")):
                each.unlink(missing_ok=True)
    for path in sorted(directory().glob("*.json")):
        # It may go, or be written, while it is read.
        with contextlib.suppress(OSError, ValueError, TypeError):
            place = KernelPlace(**runtime_files.read_json(path))
            if runtime_files.is_held(path) or (place.failed and time.time() - place.at < _ENDED_SECONDS):
                found.append(place)
            else:
                path.unlink()
    return found
