"""The records of this machine's sessions, one file each.

Each supervisor keeps ``<session>.json`` in Jupyter's runtime directory (mode 0700) and listens on sockets beside it.
The file is written before anything is created in the cluster and removed after everything there is gone, so a record
whose supervisor does not answer identifies exactly what is left to clean up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import math
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import NoneType
from typing import Any

from pathways_jupyter.base import runtime_files, tpu
from pathways_jupyter.base.config import runtime_dir
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import SessionSlice, SessionState, SuspendedArrays, Transfer
from pathways_jupyter.base.text import clock, last_upload, to_cluster, without_infinity

TEMPORARY_PREFIX = "pathways-"

INSECURE, ALTS = "insecure", "alts"
"""Credentials of the channel between JAX and the proxy: none, or those of Google Cloud's machines."""

SILENT, CUT_OFF, ABANDONED = "not answering", "out of reach", "abandoned"
"""Faults of a supervisor: it does not answer, the line to its pod is cut, or it has ended without cleaning up."""


OF_MACHINE = ("pid", "kernel_pid", "socket", "tunnel", "log", "host", "place", "config", "kubeconfigs", "context")
"""Fields that hold on one machine only: a session elsewhere that is shown here has others."""


@dataclass(frozen=True)
class SessionRecord:
    """A session as its files show it, without asking its supervisor.

    Attributes:
      id: The session's id; also the value of the session label on what it creates.
      pid: The supervisor's process.
      kernel_pid: The process that asked for the session.
      kernel_id: Jupyter's id of that kernel; empty outside Jupyter.
      notebook: Path of the notebook; empty if the server does not provide it.
      service: Address of the resource manager.
      instances: Slices held per instance type.
      job: Name of the proxy Job, and of its Lease; empty before it exists.
      generation: Counts the proxies of this session: 1, then one more with every reconnect.
      socket: The control socket.
      tunnel: The socket that JAX connects to, unless it connects to the proxy directly.
      direct: The proxy's address where JAX needs no tunnel: ``HOST:PORT``, or ``unix:PATH``; empty with a tunnel.
      credentials: Those of JAX's channel to the proxy.
      log: The supervisor's log.
      created: Seconds since the epoch.
      config: The :class:`~pathways_jupyter.base.config.ConnectConfig` as JSON values.
      kubeconfigs: The value of ``KUBECONFIG`` when the session began.
      context: The kubeconfig's context, also when it was chosen as the current one.
      state_since: When the present state began, in seconds since the epoch. An interruption, or a resume that failed,
        does not begin the state before it anew.
      connected_since: When the present proxy was connected; 0 before.
      slices: The slices that it holds, by JAX's index.
      host: Name of the machine that its supervisor runs on.
      program: The command line of the program that the session was made for; empty for notebooks and scripts.
      waited: Seconds that it has waited for taken slices, without a wait that goes on.
      sent: Bytes that its tunnel has carried to its proxies; only the supervisor's answer has the present number.
      received: Bytes from them; both are 0 without a tunnel.
      round_trip: Seconds to the API server and back, as last measured; 0 where that is not known now. Only the
        supervisor's answer has it.
      upload_rate: Bytes a second that the last long transfer to the proxy reached; 0 where there was none. Only the
        supervisor's answer has it.
      upload_measured: When, in seconds since the epoch.
      tcp_port: The loopback port that JAX connects to instead of the socket; 0 for the socket.
      pathways_job: The PathwaysJob whose proxy it uses; empty for a session with a proxy of its own.
      saved: The arrays that were saved when it was suspended, until they are restored.
      transfer: How far they are on their way, while the kernel writes or reads them; None meanwhile.
      suspend_after: Seconds without use after which it is suspended: the user's, or the service's if less; 0 for never.
      unused_since: Since when nothing was computed, in seconds since the epoch; 0 while it is used, or was lately.
      kernel_ended: When its kernel ended, in seconds since the epoch, while it is kept for another; 0 with a kernel.
      suspends_at: When it is suspended unless it is used before, in seconds since the epoch; 0 while that is not soon.
      place: Where its kernel and supervisor run, for people, where that is another machine that this one reaches:
        ``beside the chips, in pod ...``. Its sockets here lead there.
      supervisor: What is wrong with its supervisor, in a record that comes from asking it
        (:func:`~pathways_jupyter.session.client.present`); the state is then the last known one.
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
    host: str = ""
    direct: str = ""
    credentials: str = INSECURE
    program: str = ""
    waited: float = 0.0
    sent: int = 0
    received: int = 0
    round_trip: float = 0.0
    upload_rate: float = 0.0
    upload_measured: float = 0.0
    tcp_port: int = 0
    pathways_job: str = ""
    connected_since: float = 0.0
    saved: SuspendedArrays | None = None
    transfer: Transfer | None = None
    suspend_after: float = 0.0
    unused_since: float = 0.0
    suspends_at: float = 0.0
    kernel_ended: float = 0.0
    place: str = ""
    supervisor: str = ""

    def __str__(self) -> str:
        rows = {
            "service": self.service,
            "attached to": f"job {self.pathways_job}" if self.pathways_job else "",
            "tpu": tpu.format_instances(self.instances),
            "proxy": self.pod or self.job,
            "cluster": self.context,
            "namespace": self.namespace,
            "distance": self.distance,
            "notebook": self.notebook,
            "kernel": self.place,
            "data path": self.data_path if self.direct else "",
            "program": self.program,
            "saved": str(self.saved or ""),
            "suspends": f"at {clock(self.suspends_at)}" if self.suspends_at else "",
        }
        since = clock(self.since or self.created)
        state = f"{self.supervisor}, was {self.state}" if self.supervisor else self.state
        head = f"Session {self.id}: {state} since {since}"
        return "\n".join([head, *(f"  {name:<11} {value}" for name, value in rows.items() if value)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the record in IPython."""
        printer.text(str(self))

    @property
    def since(self) -> float:
        """Time at which it came to be as it is; being connected outlasts slices that go down and interruptions."""
        is_connected = self.state is SessionState.CONNECTED
        return self.connected_since if is_connected and self.connected_since else self.state_since

    @property
    def proxy(self) -> tuple[str, int]:
        """The identity of its proxy: no other one has it, of this session or another."""
        return self.id, self.generation

    @property
    def silence(self) -> str:
        """The fault of its supervisor if that does not answer."""
        return CUT_OFF if self.place else SILENT

    @property
    def is_here(self) -> bool:
        """Return whether its supervisor runs on this machine; only the same machine can check whether it is alive.

        Machines may share a home directory, but no machine reaches another's unix sockets.
        """
        return self.host in {"", this_host()}

    @property
    def owner(self) -> str:
        """Whose it is, for people: its notebook's name, or its program."""
        # Where Jupyter gives no path it is the kernel, or the process of a script or a terminal.
        process = f"kernel {self.kernel_id[:8]}" if self.kernel_id else f"process {self.kernel_pid}"
        owner = PurePath(self.notebook).name or self.program or process
        if self.place:
            return f"{owner}, beside the chips"
        return owner if self.is_here else f"{owner} on {self.host}"

    @property
    def distance(self) -> str:
        """Round trip to the cluster, and the rate of the last upload; empty where neither is known."""
        upload = last_upload(self.upload_rate, self.upload_measured)
        return ", ".join(filter(None, (to_cluster(self.round_trip), upload)))

    @property
    def target(self) -> str:
        """The address for JAX's ``proxy`` client."""
        local = f"127.0.0.1:{self.tcp_port}" if self.tcp_port else f"unix:{self.tunnel}"
        return f"grpc://{self.direct or local}"

    @property
    def data_path(self) -> str:
        """Carrier of the bytes between JAX and the proxy, in a few words."""
        if not self.direct:
            return "a tunnel through the API server"
        if self.direct.startswith("unix:"):
            return "direct, through a unix socket"
        how = "encrypted with ALTS" if self.credentials == ALTS else "unencrypted"
        return f"direct to {self.direct}, {how}"

    def as_here(self, there: SessionRecord) -> SessionRecord:
        """Return what the supervisor answers, with what this machine reaches it by, where it runs elsewhere."""
        if not self.place:
            return there
        return dataclasses.replace(there, **{name: getattr(self, name) for name in OF_MACHINE})

    def to_json(self) -> dict[str, Any]:
        """Return this record as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SessionRecord:
        """Invert :meth:`to_json`; fields of a newer version are dropped.

        Raises:
          KeyError: A field without a default is missing.
          TypeError, ValueError: A field has a value of the wrong type.
        """
        known = {each.name: each for each in dataclasses.fields(cls)}
        values = {name: item for name, item in value.items() if name in known}
        for name, item in values.items():
            expected = _JSON_TYPES[str(known[name].type).partition("[")[0]]
            if not isinstance(item, expected) or isinstance(item, bool):
                raise TypeError(f"{name} is a {type(item).__name__}")
            if isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"{name} is {item}")
        slices = tuple(SessionSlice(each["number"], each["index"], each["up"]) for each in values.get("slices", ()))
        known_save = ("count", "bytes", "place", "at")
        saved = SuspendedArrays(*(values["saved"][name] for name in known_save)) if values.get("saved") else None
        # A record of an older version has Infinity in its settings.
        config = without_infinity(values["config"])
        transfer = (
            Transfer(*(values["transfer"][name] for name in ("done", "total", "left")))
            if values.get("transfer")
            else None
        )
        parsed = {
            "config": config,
            "state": SessionState(values["state"]),
            "slices": slices,
            "saved": saved,
            "transfer": transfer,
        }
        return cls(**{**values, **parsed})


_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "Mapping": (dict,),
    "SessionState": (str,),
    "tuple": (list, tuple),
    "SuspendedArrays | None": (dict, NoneType),
    "Transfer | None": (dict, NoneType),
}
"""Types that the value of a field may have in JSON, by the field's type."""


def this_host() -> str:
    """Return this machine's name, as written in records."""
    return socket.gethostname()


def new_session_id() -> str:
    """Return a new id that is valid in a label, a file name and a pod's name."""
    return secrets.token_hex(5)


def record_path(session: str) -> Path:
    """Return the path of the record of `session`."""
    return runtime_dir() / f"{session}.json"


def log_path(session: str) -> Path:
    """Return the path of the supervisor's log of `session`."""
    return runtime_dir() / f"{session}.log"


def socket_paths(session: str) -> tuple[Path, Path]:
    """Return the paths of the control socket and the tunnel of `session`, in a directory of mode 0700.

    They are beside the record, unless its directory does not suit sockets
    (:mod:`~pathways_jupyter.base.runtime_files`); then in a new one under the system's temporary directory. The record
    contains them.
    """
    directory, longest = runtime_dir(), f"{session}.tunnel"
    if not runtime_files.suits_sockets(directory, longest):
        # Named after the session, so that orphan_files.py finds it even if the session never used it.
        directory = runtime_files.socket_directory(f"{TEMPORARY_PREFIX}{session}-", longest)
    return directory / f"{session}.sock", directory / f"{session}.tunnel"


def write(record: SessionRecord) -> None:
    """Replace the record of a session atomically: a reader sees the previous record or this one.

    Raises:
      OSError: It cannot be written, for example because the disk is full; the previous record is kept.
    """
    runtime_files.write(record_path(record.id), json.dumps(record.to_json(), allow_nan=False))


def read(session: str) -> SessionRecord | None:
    """Return the record of `session`; None if there is none, or the file is not a record."""
    try:
        record = SessionRecord.from_json(runtime_files.read_json(record_path(session)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return record if record.id == session else None


def sessions() -> list[SessionRecord]:
    """Return every session with a record on this machine, oldest first, also those whose supervisor has died."""
    records = (read(path.stem) for path in runtime_dir().glob("*.json"))
    return sorted((record for record in records if record is not None), key=lambda record: record.created)


def find(*, kernel_id: str = "", notebook: str = "") -> SessionRecord | None:
    """Return the newest live session of this kernel, or else of this notebook, whose kernel was on this machine."""
    living = [record for record in sessions() if record.is_here and not record.place and is_alive(record)]
    for name, value in (("kernel_id", kernel_id), ("notebook", notebook)):
        matches = [record for record in living if value and getattr(record, name) == value]
        if matches:
            return matches[-1]
    return None


def is_alive(record: SessionRecord) -> bool:
    """Return whether the supervisor of `record` runs: its control socket accepts connections.

    Not judged by the process id, because ids are reused and a zombie has one too.
    """
    return accepts(record.socket)


def accepts(path: str) -> bool:
    """Return whether a process listens on the unix socket `path`, even if it is too busy to accept."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError as error:
            # A full backlog means that a process listens but is busy: Linux fails at once, other systems block.
            return isinstance(error, TimeoutError) or error.errno in {errno.EAGAIN, errno.EINPROGRESS}
        except ValueError:
            # Not a valid path.
            return False
    return True


def remove(record: SessionRecord) -> None:
    """Delete the files of an ended session: sockets, log, and the record last.

    Raises:
      SessionError: Some cannot be deleted; the others are deleted.
    """
    session, directory = record.id, Path(record.socket).parent
    paths = [Path(record.socket), Path(record.tunnel), Path(record.log), *runtime_dir().glob(f"{session}.*.tmp")]
    problems: list[OSError] = []
    for path in (*paths, record_path(session)):
        # The record only when nothing else is left: without it the next sweep would not find the rest.
        if not (problems and path == record_path(session)):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                problems.append(error)
    if directory != runtime_dir() and directory.name.startswith(TEMPORARY_PREFIX):
        with contextlib.suppress(OSError):
            directory.rmdir()
    if problems:
        raise SessionError(
            f"Files of session {session} in {runtime_dir()} could not be removed: {problems[0].strerror}.",
            hint="pathways-jupyter clean removes them once the directory can be written again.",
        ) from problems[0]
