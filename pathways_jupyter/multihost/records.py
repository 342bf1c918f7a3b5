"""What this machine knows about its runs: one file each, so that another process can come back to them."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pathways_jupyter import locks
from pathways_jupyter.config import runtime_dir
from pathways_jupyter.errors import ConfigError
from pathways_jupyter.multihost.errors import MultihostError
from pathways_jupyter.multihost.targets import Target

_KEEP_SECONDS = 7 * 24 * 3600.0
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Record:
    """One run.

    Attributes:
      id: Unique.
      name: The run directory on the hosts; several runs may use the same one.
      command: What runs, for a shell.
      logs: Directory of this machine with the output of each host.
      detached: Whether the run goes on without a client.
      connection: How to reach the hosts again: options of SSH, or of the cluster.
      started: Seconds since the epoch.
      code: The worst exit code; None while it is not known.
    """

    id: str
    name: str
    command: str
    targets: tuple[Target, ...]
    logs: str
    detached: bool = False
    connection: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0
    ended: float = 0.0
    code: int | None = None

    @property
    def attended(self) -> bool:
        """Whether a process of this machine follows the run now."""
        return locks.is_held(_path(self.id).with_suffix(".lock"))

    @property
    def state(self) -> str:
        """In a word: ``running``, ``detached``, ``ended``, or ``left`` when its client has gone without ending it."""
        if self.code is not None:
            return "ended"
        return "running" if self.attended else "detached" if self.detached else "left"

    def on(self, target: Target) -> str:
        """Return the id of the run on `target`; unique also where hosts share a home directory or are one machine."""
        return f"{self.id}.{target.label}"

    def log(self, target: Target) -> Path:
        """Return the file with the output of `target`."""
        return Path(self.logs) / target.log_name

    def save(self) -> None:
        """Write the record.

        Raises:
          ConfigError: The runtime directory cannot be written.
        """
        path = _path(self.id)
        scratch = path.with_suffix(f".{os.getpid()}.partial")
        try:
            scratch.write_text(json.dumps({**dataclasses.asdict(self)}), encoding="utf-8")
            scratch.replace(path)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error

    @contextlib.contextmanager
    def attending(self) -> Iterator[None]:
        """Hold the run's lock, so that others know that it is being followed.

        Raises:
          MultihostError: Another process of this machine follows it.
        """
        file = os.open(_path(self.id).with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise MultihostError(
                    f"Another process follows run {self.name} already.",
                    hint="%pathways multihost logs shows its output.",
                ) from None
            yield
        finally:
            os.close(file)


def new_id(name: str) -> str:
    """Return an id for a new run of `name`.

    Raises:
      ConfigError: `name` cannot be the name of a directory.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a run.", hint="Use letters, digits, dots, dashes and underscores."
        )
    return f"{name}-{secrets.token_hex(4)}"


def default_name() -> str:
    """Return the name of a run that was given none: the time."""
    return time.strftime("%Y-%m-%d-%H-%M-%S")


def runs() -> list[Record]:
    """Return all runs of this machine, the newest first; records of old ones that ended are removed."""
    found = []
    for path in _folder().glob("*.json"):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            record = Record(**{**data, "targets": tuple(Target.from_json(each) for each in data["targets"])})
        except (OSError, ValueError, TypeError, KeyError):
            # Written by another version, or gone in this moment.
            continue
        if record.ended and time.time() - record.ended > _KEEP_SECONDS:
            for each in (path, path.with_suffix(".lock")):
                each.unlink(missing_ok=True)
            continue
        found.append(record)
    return sorted(found, key=lambda each: each.started, reverse=True)


def find(wanted: str = "") -> Record:
    """Return the newest run whose name or id begins with `wanted`, or the newest of all.

    Raises:
      MultihostError: There is none.
    """
    known = runs()
    exact = [each for each in known if wanted in {each.name, each.id}]
    for each in exact or known:
        if each.id.startswith(wanted):
            return each
    if not known:
        raise MultihostError("There is no run on this machine.", hint="%pathways multihost run starts one.")
    names = ", ".join(dict.fromkeys(each.name for each in known))
    raise MultihostError(f"There is no run {wanted!r}.", hint=f"Runs on this machine: {names}.")


def _folder() -> Path:
    folder = runtime_dir() / "multihost"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _path(run: str) -> Path:
    return _folder() / f"{run}.json"
