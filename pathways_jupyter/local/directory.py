"""Where a cluster lives on disk, and how one tells a running cluster from what a crash left behind.

Beside each cluster's directory lies the file ``<name>.lock`` while somebody starts or ends the cluster, who holds it.
Inside, the daemon holds ``alive`` locked for as long as it lives, however it ends; the kernel of the operating system
keeps that promise, so a process id from a file is never trusted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pathways_jupyter import locks
from pathways_jupyter.config import runtime_dir
from pathways_jupyter.errors import LocalClusterError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class Record:
    """What a running daemon wrote down about itself, which may be of another version than who reads it.

    Attributes:
      port: Where its API listens on 127.0.0.1.
      control: The unix socket on which it takes orders.
      instances: Slices per instance type.
      sidecar: Whether every worker has a colocated Python sidecar.
      fast_heal: Whether it replaces what failed quickly, instead of as Kubernetes does.
      elsewhere: Directories outside the cluster's own that go with it.
    """

    pid: int
    port: int
    control: str
    instances: dict[str, int] = field(default_factory=dict)
    sidecar: bool = False
    fast_heal: bool = False
    elsewhere: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Record:
        """The inverse of ``asdict``; what only another version knows is dropped.

        Raises:
          KeyError: What every version needs is missing.
          TypeError, ValueError: It is there, and is not what it should be.
        """
        return cls(
            pid=int(values["pid"]),
            port=int(values["port"]),
            control=str(values["control"]),
            instances={str(kind): int(count) for kind, count in dict(values.get("instances") or {}).items()},
            sidecar=bool(values.get("sidecar")),
            fast_heal=bool(values.get("fast_heal")),
            elsewhere=tuple(str(each) for each in values.get("elsewhere") or ()),
        )


class ClusterDirectory:
    """One cluster's place on disk.

    Args:
      name: Which cluster, where one keeps several.

    Raises:
      LocalClusterError: The name cannot be used.
    """

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise LocalClusterError(
                f"{name!r} cannot be the name of a local cluster.",
                hint="Use at most 40 lower-case letters, digits and dashes.",
            )
        self.name = name
        self._base = runtime_dir() / "local"
        self._base.mkdir(mode=0o700, exist_ok=True)
        self.path = self._base / name
        self._record = self.path / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.path / "kubeconfig"

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """Waits until nobody else starts or ends this cluster, and keeps it so."""
        path = self._base / f"{self.name}.lock"
        lock = _lock(path)
        try:
            yield
        finally:
            # Only who holds it removes it; who waited for this very file sees that it is gone, and takes a new one.
            path.unlink(missing_ok=True)
            os.close(lock)

    def make(self) -> int:
        """Makes the directory, without what an earlier cluster left; the descriptor that the daemon must hold."""
        self.remove()
        self.path.mkdir(mode=0o700)
        alive = os.open(self.path / locks.ALIVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(alive, fcntl.LOCK_EX)
        return alive

    def alive(self) -> bool:
        """Whether a daemon holds the directory."""
        return locks.is_held(self.path / locks.ALIVE)

    def kill(self) -> None:
        """Kills a daemon that does not answer; it holds its lock, so the process id is still its own."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.path / locks.ALIVE).read_text(encoding="ascii"))
            if self.alive():
                os.kill(pid, signal.SIGKILL)

    def until_dead(self) -> None:
        """Waits until no daemon holds the directory."""
        with contextlib.suppress(OSError):
            file = os.open(self.path / locks.ALIVE, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_SH)
            finally:
                os.close(file)

    def read(self) -> Record | None:
        """What the daemon wrote down; None when it has not come that far, or when this version cannot read it."""
        try:
            return Record.from_json(json.loads(self._record.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def written(self) -> bool:
        """Whether a daemon has written anything down, whatever it may be."""
        return self._record.exists()

    def write(self, record: Record) -> None:
        """Writes down what is true of the running daemon."""
        write_private(self._record, json.dumps(asdict(record)))

    def remove(self) -> None:
        """Removes everything of a cluster that does not run."""
        if (record := self.read()) is not None:
            for each in record.elsewhere:
                shutil.rmtree(each, ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)


def _lock(path: Path) -> int:
    """Waits for the lock that is the file `path`, and returns the descriptor that holds it."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.stat(path)):
                    return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def write_private(path: Path, text: str) -> None:
    """Replaces a file as a whole; only its owner can read it."""
    fresh = path.with_name(f"{path.name}.new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)
