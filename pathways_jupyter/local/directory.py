"""A cluster's directory, and the locks that distinguish a running cluster from the remains of a crash.

``<name>.lock`` exists beside the directory while a process starts or ends the cluster; that process holds it locked.
Inside, the daemon keeps ``alive`` locked for as long as it lives. The operating system releases that lock however the
daemon ends, so a process id read from a file is never trusted without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pathways_jupyter.base import runtime_files
from pathways_jupyter.base.errors import LocalClusterError
from pathways_jupyter.local.settings import ClusterSettings

CONTEXT = "pathways-local"
"""The name of the context and of the cluster in kubeconfigs."""
BUCKET = "bucket"
"""The directory of the bucket's objects, in the cluster's own."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class DaemonRecord:
    """A running daemon's record of itself.

    Attributes:
      port: Where its API listens on 127.0.0.1.
      control: The unix socket on which it takes requests.
      elsewhere: Directories outside the cluster's own that are removed with it.
    """

    pid: int
    port: int
    control: str
    elsewhere: Sequence[str]
    settings: ClusterSettings


class ClusterDirectory:
    """One cluster's directory on disk.

    Args:
      name: The cluster's name, for users who run several.

    Raises:
      LocalClusterError: The name cannot be used.
    """

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise LocalClusterError(
                f"{name!r} cannot be the name of an embedded cluster.",
                hint="Use at most 40 lower-case letters, digits and dashes.",
            )
        self.name = name
        self._base = runtime_files.embedded_clusters()
        self._base.mkdir(mode=0o700, exist_ok=True)
        self.path = self._base / name
        self._record = self.path / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.path / runtime_files.KUBECONFIG

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """Wait until no other process starts or ends this cluster, and keep others out."""
        path = self._base / f"{self.name}.lock"
        lock = _lock(path)
        try:
            yield
        finally:
            # Only the holder removes the file; a process that waited for it sees that it is gone, and locks a new one.
            path.unlink(missing_ok=True)
            os.close(lock)

    def make(self) -> int:
        """Make the directory, with the bucket of an earlier cluster; the descriptor that the daemon must hold."""
        self.clear()
        self.path.mkdir(mode=0o700, exist_ok=True)
        alive = os.open(self.path / runtime_files.ALIVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(alive, fcntl.LOCK_EX)
        return alive

    def alive(self) -> bool:
        """Return whether a daemon holds the directory."""
        return runtime_files.is_held(self.path / runtime_files.ALIVE)

    def kill(self) -> None:
        """Kill a daemon that does not answer; it holds its lock, so the process id is still its own."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.path / runtime_files.ALIVE).read_text(encoding="ascii"))
            if self.alive():
                os.kill(pid, signal.SIGKILL)

    def until_dead(self) -> None:
        """Wait until no daemon holds the directory."""
        with contextlib.suppress(OSError):
            file = os.open(self.path / runtime_files.ALIVE, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_SH)
            finally:
                os.close(file)

    def read(self) -> DaemonRecord | None:
        """Return the daemon's record; None when it has not been written yet, or when this version cannot read it."""
        try:
            values = runtime_files.read_json(self._record)
            return DaemonRecord(**{**values, "settings": ClusterSettings(**values["settings"])})
        # TypeError: the daemon's version has other fields.
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def written(self) -> bool:
        """Return whether a daemon has written a record, readable or not."""
        return self._record.exists()

    def write(self, record: DaemonRecord) -> None:
        """Write the running daemon's record."""
        runtime_files.write(self._record, json.dumps(asdict(record)))

    def clear(self) -> None:
        """Remove what a cluster that does not run has left, but for its bucket if there is anything in it.

        Saves are found again after a crash, or after a night without use.
        """
        objects = self.path / BUCKET
        if not any(path.is_file() for path in objects.rglob("*")):
            self.remove()
            return
        self._remove_elsewhere()
        for path in self.path.iterdir():
            if path.is_dir() and path != objects:
                shutil.rmtree(path, ignore_errors=True)
            elif not path.is_dir():
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove everything of a cluster that does not run."""
        self._remove_elsewhere()
        shutil.rmtree(self.path, ignore_errors=True)

    def _remove_elsewhere(self) -> None:
        if (record := self.read()) is not None:
            for each in record.elsewhere:
                shutil.rmtree(each, ignore_errors=True)


def named(name: str) -> str:
    """Return the end of a command that is for the cluster of this name; empty for the default one."""
    return "" if name == runtime_files.DEFAULT_CLUSTER else f" --name {name}"


def _lock(path: Path) -> int:
    """Wait for the lock that is the file `path`, and return the descriptor that holds it."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                # The last holder may have removed the file between open and flock: a lock on it excludes no process.
                if os.path.samestat(os.fstat(lock), os.stat(path)):
                    return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
