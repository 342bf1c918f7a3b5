"""Records of this machine's runs: one file each, so that another process can come back to them.

The process that follows a run keeps the states of the hosts in it up to date, so that others (the sidebar's server, for
one) can show them without connecting to any host. Their age matters as much as their content: without a process that
follows, it only grows older.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pathways_jupyter.base import runtime_files
from pathways_jupyter.base.config import runtime_dir
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.multihost.errors import RunIsFollowed, UnknownRun
from pathways_jupyter.multihost.run_events import HostStatus
from pathways_jupyter.multihost.targets import Target

_KEEP_SECONDS = 7 * 24 * 3600.0
_LOCK_ATTEMPTS, _LOCK_PAUSE_SECONDS = 5, 0.01
_UNWRITABLE = "Free space there, or name another directory with JUPYTER_RUNTIME_DIR."
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_ENDING = re.compile(r"-[0-9a-f]{8}\Z")


@dataclass(frozen=True)
class RunRecord:
    """One run.

    Attributes:
      id: Unique.
      name: The run directory on the hosts; several runs may use the same one.
      command: What runs, for a shell.
      logs: Directory of this machine with the output of each host.
      grace: Seconds between SIGTERM and SIGKILL.
      detached: Whether the run goes on without a client.
      connection: How to reach the hosts again: options of SSH, or of the cluster.
      started: Seconds since the epoch.
      code: The worst exit code; None while it is not known.
      hosts: The states of the targets as last known, which was `at`; see :attr:`states`.
    """

    id: str
    name: str
    command: str
    targets: tuple[Target, ...]
    logs: str
    grace: float = 0.0
    detached: bool = False
    connection: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0
    ended: float = 0.0
    code: int | None = None
    hosts: tuple[HostStatus, ...] = ()
    at: float = 0.0

    @property
    def states(self) -> tuple[HostStatus, ...]:
        """The hosts as last known; those about which nothing is known are waiting."""
        return self.hosts or tuple(HostStatus(target) for target in self.targets)

    @property
    def attended(self) -> bool:
        """Return whether a process of this machine follows the run now."""
        return runtime_files.is_held(_path(self.id).with_suffix(".lock"))

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
            scratch.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")
            scratch.replace(path)
        except OSError as error:
            scratch.unlink(missing_ok=True)
            raise ConfigError(f"{path} cannot be written: {error.strerror}.", hint=_UNWRITABLE) from error

    def with_states(self, hosts: Sequence[HostStatus], **values: Any) -> RunRecord:
        """Write and return the record with the states of its hosts as they are now, and other new `values`.

        Raises:
          ConfigError: The runtime directory cannot be written.
        """
        record = dataclasses.replace(self, hosts=tuple(hosts), at=time.time(), **values)
        record.save()
        return record

    @property
    def stop_requested(self) -> bool:
        """Return whether another process has asked the one that follows the run to end it."""
        return _path(self.id).with_suffix(".stop").exists()

    def request_stop(self) -> None:
        """Ask the process that follows the run to end it.

        Raises:
          ConfigError: The runtime directory cannot be written.
        """
        path = _path(self.id).with_suffix(".stop")
        try:
            path.touch()
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}.", hint=_UNWRITABLE) from error

    def forget(self) -> None:
        """Remove the record; what runs on the hosts, and the logs, are not affected."""
        for suffix in (".json", ".lock", ".stop"):
            _path(self.id).with_suffix(suffix).unlink(missing_ok=True)

    @contextlib.contextmanager
    def attending(self) -> Iterator[None]:
        """Hold the run's lock, so that others know that it is being followed.

        Raises:
          RunIsFollowed: Another process of this machine follows it.
        """
        file = os.open(_path(self.id).with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Another process may hold it just long enough to see whether it is held.
            for _ in range(_LOCK_ATTEMPTS):
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(_LOCK_PAUSE_SECONDS)
            else:
                raise RunIsFollowed(
                    f"Another process follows run {self.name} already.",
                    hint=advice("{multihost_logs} shows its output."),
                )
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


def runs() -> list[RunRecord]:
    """Return all runs of this machine, the newest first; records of old ones that ended are removed."""
    found = []
    for path in _folder().glob("*.json"):
        record = _read(path)
        if record is not None and record.ended and time.time() - record.ended > _KEEP_SECONDS:
            record.forget()
        elif record is not None:
            found.append(record)
    return sorted(found, key=lambda each: each.started, reverse=True)


def find(wanted: str = "") -> RunRecord:
    """Return the newest run whose name or id begins with `wanted`, or the newest of all.

    Raises:
      UnknownRun: There is none.
    """
    listed = runs()
    exact = [each for each in listed if wanted in {each.name, each.id}]
    for each in exact or listed:
        if each.id.startswith(wanted):
            return each
    if not listed:
        raise UnknownRun("There is no run on this machine.", hint=advice("{multihost_run} starts one."))
    names = ", ".join(dict.fromkeys(each.name for each in listed))
    raise UnknownRun(f"There is no run {wanted!r}.", hint=f"Runs on this machine: {names}.")


def read(run: str) -> RunRecord:
    """Return the run with exactly this id, which may come from a page.

    Raises:
      UnknownRun: There is none.
    """
    # The id becomes part of a file name.
    record = _read(_path(run)) if _NAME.fullmatch(run.rpartition("-")[0]) and _ENDING.search(run) else None
    if record is None:
        raise UnknownRun(f"There is no run {run[:120]!r} on this machine.", hint=advice("{multihost_runs} lists them."))
    return record


def goes_on(run: str) -> bool:
    """Return whether the run with this id may still produce output; false once it has ended or its record is gone."""
    record = _read(_path(run))
    return record is not None and record.code is None


def fingerprint(followed: Iterable[str]) -> object:
    """Return a value that changes when a record changes, or one of `followed` is not followed any more; reads none.

    Args:
      followed: Ids of runs that a process of this machine follows; its death changes no file.
    """
    abandoned = [run for run in followed if not runtime_files.is_held(_path(run).with_suffix(".lock"))]
    return runtime_files.fingerprint(_folder()), abandoned


def _read(path: Path) -> RunRecord | None:
    """Return the record in a file; None if another version wrote it, or it is gone by now."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        targets = tuple(Target(**each) for each in data["targets"])
        return RunRecord(**{**data, "targets": targets, "hosts": tuple(map(HostStatus.from_json, data["hosts"]))})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _folder() -> Path:
    folder = runtime_dir() / "multihost"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _path(run: str) -> Path:
    return _folder() / f"{run}.json"
