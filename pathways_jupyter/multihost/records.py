"""What this machine knows about its runs: one file each, so that another process can come back to them.

Beside it stands a file with the states of the run's hosts as last known. The process that follows a run writes it, so
that others (the sidebar's server, for one) can show the hosts without connecting to them. Its age matters as much as
its content: without a process that follows, it only grows older.
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

from pathways_jupyter import runtime_files
from pathways_jupyter.config import runtime_dir
from pathways_jupyter.errors import ConfigError
from pathways_jupyter.multihost.errors import MultihostError, UnknownRun
from pathways_jupyter.multihost.run_events import HostStatus, Phase
from pathways_jupyter.multihost.targets import Target

_KEEP_SECONDS = 7 * 24 * 3600.0
_LOCK_ATTEMPTS, _LOCK_PAUSE_SECONDS = 5, 0.01
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_ENDING = re.compile(r"-[0-9a-f]{8}\Z")
_LAST_LINE_CHARACTERS = 300


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

    @property
    def states_path(self) -> Path:
        """The file with the states of the hosts; see :class:`HostStates`."""
        return _path(self.id).with_suffix(".hosts")

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

    @property
    def stop_asked(self) -> bool:
        """Whether another process has asked the one that follows the run to end it."""
        return _path(self.id).with_suffix(".stop").exists()

    def ask_to_stop(self) -> None:
        """Ask the process that follows the run to end it.

        Raises:
          ConfigError: The runtime directory cannot be written.
        """
        path = _path(self.id).with_suffix(".stop")
        try:
            path.touch()
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error

    def forget(self) -> None:
        """Remove the record; what runs on the hosts, and the logs, are not affected."""
        for suffix in (".json", ".hosts", ".lock", ".stop"):
            _path(self.id).with_suffix(suffix).unlink(missing_ok=True)

    @contextlib.contextmanager
    def attending(self) -> Iterator[None]:
        """Hold the run's lock, so that others know that it is being followed.

        Raises:
          MultihostError: Another process of this machine follows it.
        """
        file = os.open(_path(self.id).with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _locked(file):
                raise MultihostError(
                    f"Another process follows run {self.name} already.",
                    hint="%pathways multihost logs shows its output.",
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


def default_name() -> str:
    """Return the name of a run that was given none: the time."""
    return time.strftime("%Y-%m-%d-%H-%M-%S")


def runs() -> list[Record]:
    """Return all runs of this machine, the newest first; records of old ones that ended are removed."""
    found = []
    for path in _folder().glob("*.json"):
        record = _read(path)
        if record is None:
            continue
        if record.ended and time.time() - record.ended > _KEEP_SECONDS:
            record.forget()
            continue
        found.append(record)
    return sorted(found, key=lambda each: each.started, reverse=True)


def find(wanted: str = "") -> Record:
    """Return the newest run whose name or id begins with `wanted`, or the newest of all.

    Raises:
      UnknownRun: There is none.
    """
    known = runs()
    exact = [each for each in known if wanted in {each.name, each.id}]
    for each in exact or known:
        if each.id.startswith(wanted):
            return each
    if not known:
        raise UnknownRun("There is no run on this machine.", hint="%pathways multihost run starts one.")
    names = ", ".join(dict.fromkeys(each.name for each in known))
    raise UnknownRun(f"There is no run {wanted!r}.", hint=f"Runs on this machine: {names}.")


def read(run: str) -> Record:
    """Return the run with exactly this id, which may come from a page.

    Raises:
      UnknownRun: There is none.
    """
    # The id becomes part of a file name.
    record = _read(_path(run)) if _NAME.fullmatch(run.rpartition("-")[0]) and _ENDING.search(run) else None
    if record is None:
        raise UnknownRun(f"There is no run {run[:120]!r} on this machine.", hint="%pathways multihost runs lists them.")
    return record


def goes_on(run: str) -> bool:
    """Whether the run with this id may still produce output; false once its end is known, or its record is gone."""
    record = _read(_path(run))
    return record is not None and record.code is None


def fingerprint(followed: Iterable[str]) -> object:
    """Return a value that changes when a record, the states of a run's hosts, or one of `followed` changes; reads none.

    Args:
      followed: Ids of runs that a process of this machine follows; its death changes no file.
    """
    found = []
    with os.scandir(_folder()) as entries:
        for entry in entries:
            # A file may be removed between scandir() and stat().
            with contextlib.suppress(FileNotFoundError):
                if entry.name.endswith((".json", ".hosts")):
                    found.append((entry.name, entry.stat().st_mtime_ns, entry.inode()))
    return sorted(found), [run for run in followed if not runtime_files.is_held(_path(run).with_suffix(".lock"))]


def _locked(file: int) -> bool:
    """Lock `file`; return false if another process holds it for longer than to see whether it is locked."""
    for _ in range(_LOCK_ATTEMPTS):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_LOCK_PAUSE_SECONDS)
    return False


def _read(path: Path) -> Record | None:
    """Return the record in a file; None if another version wrote it, or it is gone by now."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Record(**{**data, "targets": tuple(Target.from_json(each) for each in data["targets"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _folder() -> Path:
    folder = runtime_dir() / "multihost"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _path(run: str) -> Path:
    return _folder() / f"{run}.json"


@dataclass(frozen=True)
class HostStates:
    """The hosts of a run.

    Attributes:
      at: When this was true, in seconds since the epoch; 0 if nothing is known.
    """

    hosts: tuple[HostStatus, ...]
    at: float = 0.0


def write_states(record: Record, hosts: Sequence[HostStatus]) -> None:
    """Write the states of `hosts` as those of now. A full disk is no error: the run itself is not affected."""
    path = record.states_path
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        scratch.write_text(json.dumps({"at": time.time(), "hosts": [_to_json(each) for each in hosts]}))
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)


def read_states(record: Record) -> HostStates:
    """Return what is known; hosts about which nothing is known are waiting."""
    try:
        found = json.loads(record.states_path.read_text(encoding="utf-8"))
        known = {each.pop("label"): each for each in found["hosts"]}
        hosts = tuple(_from_json(HostStatus(target), known.get(target.label, {})) for target in record.targets)
        return HostStates(hosts, float(found["at"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        # Not written yet, or by another version.
        return HostStates(tuple(HostStatus(target) for target in record.targets))


def _to_json(host: HostStatus) -> dict[str, object]:
    values = {field.name: getattr(host, field.name) for field in dataclasses.fields(host) if field.name != "target"}
    return {**values, "label": host.target.label, "last_line": host.last_line[:_LAST_LINE_CHARACTERS]}


def _from_json(host: HostStatus, values: dict[str, object]) -> HostStatus:
    given = {**values, "phase": Phase(str(values.get("phase", host.phase)))}
    return dataclasses.replace(host, **given)  # type: ignore[arg-type]
