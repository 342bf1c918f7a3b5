"""Where a cluster lives on disk, and how one tells a running cluster from what a crash left behind.

Beside each cluster's directory lies the file ``<name>.lock``: whoever starts or ends the cluster holds it. Inside, the
daemon holds ``alive`` locked for as long as it lives, however it ends; the kernel of the operating system keeps that
promise, so a process id from a file is never trusted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pathways_jupyter.config import runtime_dir
from pathways_jupyter.errors import LocalClusterError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class Record:
    """What a running daemon wrote down about itself.

    Attributes:
      port: Where its API listens on 127.0.0.1.
      control: The unix socket on which it takes orders.
      instances: Slices per instance type.
      sidecar: Whether every worker has a colocated Python sidecar.
      elsewhere: Directories outside the cluster's own that go with it.
    """

    pid: int
    port: int
    control: str
    instances: dict[str, int]
    sidecar: bool
    elsewhere: tuple[str, ...] = ()


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

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.path / "kubeconfig"

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """Waits until nobody else starts or ends this cluster, and keeps it so."""
        lock = os.open(self._base / f"{self.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def make(self) -> int:
        """Makes the directory, without what an earlier cluster left; the descriptor that the daemon must hold."""
        self.remove()
        self.path.mkdir(mode=0o700)
        alive = os.open(self.path / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(alive, fcntl.LOCK_EX)
        return alive

    def alive(self) -> bool:
        """Whether a daemon holds the directory."""
        try:
            file = os.open(self.path / "alive", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def kill(self) -> None:
        """Kills a daemon that does not answer; it holds its lock, so the process id is still its own."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.path / "alive").read_text(encoding="ascii"))
            if self.alive():
                os.kill(pid, signal.SIGKILL)

    def until_dead(self) -> None:
        """Waits until no daemon holds the directory."""
        with contextlib.suppress(OSError):
            file = os.open(self.path / "alive", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_SH)
            finally:
                os.close(file)

    def read(self) -> Record | None:
        """What the daemon wrote down; None when it has not come that far."""
        try:
            values: dict[str, Any] = json.loads((self.path / "cluster.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return Record(**{**values, "elsewhere": tuple(values["elsewhere"])})

    def write(self, record: Record) -> None:
        """Writes down what is true of the running daemon."""
        write_private(self.path / "cluster.json", json.dumps(asdict(record)))

    def remove(self) -> None:
        """Removes everything of a cluster that does not run."""
        if (record := self.read()) is not None:
            for each in record.elsewhere:
                shutil.rmtree(each, ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)


def write_private(path: Path, text: str) -> None:
    """Replaces a file as a whole; only its owner can read it."""
    fresh = path.with_name(f"{path.name}.new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)
