"""Sessions are files: whoever wants to know what runs on this machine reads this directory.

Each supervisor keeps ``<session>.json`` in Jupyter's runtime directory (mode 0700) and listens on sockets beside it.
The file is written before anything is created in the cluster and removed after everything there is gone, so a record
whose supervisor does not answer names exactly what is left to clean up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import getpass
import json
import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pathways_jupyter import tpu
from pathways_jupyter.config import runtime_dir
from pathways_jupyter.events import SessionSlice, SessionState

_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""The longest path that ``sun_path`` holds, its closing NUL left out."""


@dataclass(frozen=True)
class SessionRecord:
    """What is known of one session without asking its supervisor.

    Attributes:
      id: The session's id; also the value of the session label on what it creates.
      pid: The supervisor's process.
      kernel_pid: The process that asked for the session.
      kernel_id: Jupyter's id of that kernel; empty outside Jupyter.
      notebook: Path of the notebook; empty where the server does not tell.
      service: Address of the resource manager.
      instances: Slices held per instance type.
      job: Name of the proxy Job, and of its Lease; empty before it exists.
      generation: Counts the proxies of this session: 1, then one more with every reconnect.
      socket: The control socket.
      tunnel: The socket that JAX connects to.
      log: The supervisor's log.
      created: Seconds since the epoch.
      config: The :class:`~pathways_jupyter.config.ConnectConfig` as JSON values.
      kubeconfigs: What ``KUBECONFIG`` said when the session began.
      context: The kubeconfig's context, also where it was the current one and nobody named it.
      state_since: When the present state began, in seconds since the epoch.
      slices: The slices that it holds now, by JAX's index.
    """

    id: str
    pid: int
    kernel_pid: int
    kernel_id: str
    notebook: str
    user: str
    created: float
    socket: str
    tunnel: str
    log: str
    config: Mapping[str, Any]
    state: SessionState = SessionState.STARTING
    namespace: str = ""
    context: str = ""
    service: str = ""
    instances: Mapping[str, int] = field(default_factory=dict)
    job: str = ""
    pod: str = ""
    kubeconfigs: str = ""
    generation: int = 0
    state_since: float = 0.0
    slices: tuple[SessionSlice, ...] = ()

    def __str__(self) -> str:
        since = self.state_since or self.created
        rows = {
            "service": self.service,
            "tpu": tpu.format_instances(self.instances),
            "proxy": self.pod or self.job,
            "cluster": self.context,
            "namespace": self.namespace,
            "notebook": self.notebook,
        }
        head = f"Session {self.id}: {self.state} since {time.strftime('%H:%M:%S', time.localtime(since))}"
        return "\n".join([head, *(f"  {name:<10} {value}" for name, value in rows.items() if value)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython shows of it."""
        printer.text(str(self))

    @property
    def target(self) -> str:
        """The address that JAX's ``proxy`` client takes."""
        return f"grpc://unix:{self.tunnel}"

    def to_json(self) -> dict[str, Any]:
        """This record as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SessionRecord:
        """The inverse of :meth:`to_json`; fields of a newer version are dropped."""
        known = {each.name for each in dataclasses.fields(cls)}
        given = {name: item for name, item in value.items() if name in known}
        slices = tuple(SessionSlice(each["number"], each["index"], each["up"]) for each in given.get("slices", ()))
        # A supervisor of an older version does not write when its state began.
        since = given.get("state_since") or given["created"]
        return cls(**{**given, "state": SessionState(given["state"]), "slices": slices, "state_since": since})


def new_session_id() -> str:
    """An id that fits a label, a file name and a pod's name."""
    return secrets.token_hex(5)


def current_user() -> str:
    """The name of who runs this process; the bare number where the system has no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def record_path(session: str) -> Path:
    """Where the record of `session` is."""
    return runtime_dir() / f"{session}.json"


def log_path(session: str) -> Path:
    """Where the supervisor of `session` writes its log."""
    return runtime_dir() / f"{session}.log"


def socket_paths(session: str) -> tuple[Path, Path]:
    """Control socket and tunnel of `session`, in a directory of mode 0700.

    They are beside the record, unless that path is longer than a socket address may be; then in a directory made for
    this session under the system's temporary one. The record says which.
    """
    directory = runtime_dir()
    if len(os.fsencode(directory / f"{session}.tunnel")) > _SOCKET_PATH_BYTES:
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) > 60:
            parent = "/tmp"
        directory = Path(tempfile.mkdtemp(prefix="pathways-", dir=parent))
    return directory / f"{session}.sock", directory / f"{session}.tunnel"


def write(record: SessionRecord) -> None:
    """Puts `record` in place of the former one; a reader sees either, never half of one."""
    path = record_path(record.id)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(record.to_json(), file)
    temporary.replace(path)


def read(session: str) -> SessionRecord | None:
    """The record of `session`; None when there is none, or what is there is not a record."""
    try:
        return SessionRecord.from_json(json.loads(record_path(session).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def sessions() -> list[SessionRecord]:
    """Every session with a record on this machine, oldest first, whether its supervisor lives or not."""
    found = (read(path.stem) for path in runtime_dir().glob("*.json"))
    return sorted((record for record in found if record is not None), key=lambda record: record.created)


def find(*, kernel_id: str = "", notebook: str = "") -> SessionRecord | None:
    """The youngest living session of this kernel, or else of this notebook."""
    living = [record for record in sessions() if is_alive(record)]
    for name, wanted in (("kernel_id", kernel_id), ("notebook", notebook)):
        matches = [record for record in living if wanted and getattr(record, name) == wanted]
        if matches:
            return matches[-1]
    return None


def is_alive(record: SessionRecord) -> bool:
    """Whether the supervisor of `record` is there: its control socket takes a connection.

    A socket and not a process id: ids are used again, and a zombie has one too.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(record.socket)
        except TimeoutError:
            return True
        except OSError as error:
            # A full backlog means that somebody listens, and is busy.
            return error.errno in {errno.EAGAIN, errno.EINPROGRESS}
    return True


def remove(record: SessionRecord) -> None:
    """Deletes the files of a session that is over: sockets, log, and the record last."""
    session, directory = record.id, Path(record.socket).parent
    for path in (Path(record.socket), Path(record.tunnel), Path(record.log)):
        path.unlink(missing_ok=True)
    for leftover in runtime_dir().glob(f"{session}.*.tmp"):
        leftover.unlink(missing_ok=True)
    if directory != runtime_dir() and directory.name.startswith("pathways-"):
        with contextlib.suppress(OSError):
            directory.rmdir()
    record_path(session).unlink(missing_ok=True)
