"""What the magics and the command line do with runs: start, attach, stop, status, logs, hosts, dry run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pathways_jupyter.multihost import host_connections, records
from pathways_jupyter.multihost.errors import HostError
from pathways_jupyter.multihost.host_connections import Kept
from pathways_jupyter.multihost.hostsession import Holder, HostSession, Outcome, Sessions
from pathways_jupyter.multihost.output import HostLog, last_line
from pathways_jupyter.multihost.pack import Packed, pack
from pathways_jupyter.multihost.records import Record
from pathways_jupyter.multihost.run import LEASE_SECONDS, Plan, Runner
from pathways_jupyter.multihost.run_events import Ended, Event, HostStatus, Note, Phase, worst
from pathways_jupyter.multihost.targets import Target
from pathways_jupyter.wording import count, size

Answer = TypeVar("Answer")

LOG_FOLDER = "multihost-runs"
_POLL_SECONDS, _END_POLLS = 0.1, 600


@dataclass(frozen=True)
class Request:
    """A run that the user wants.

    Attributes:
      command: For a shell on the hosts.
      directory: What is sent.
      name: The run directory on the hosts; the time when empty.
      send: Whether to send anything; otherwise the run directory must be on the hosts.
      logs: Parent of the directory with the logs.
      relay: Send to a few hosts, which pass it on to the others.
      keep_tpu: Leave alone what holds the TPUs of the hosts.
    """

    command: str
    directory: Path = Path()
    name: str = ""
    exclude: tuple[str, ...] = ()
    send: bool = True
    logs: Path = field(default_factory=lambda: Path(LOG_FOLDER))
    keep_going: bool = False
    relay: bool = False
    keep_tpu: bool = False
    detach: bool = False
    grace: float = 10.0
    lease: float = LEASE_SECONDS


@dataclass(frozen=True)
class HostReport:
    """What is on a host before a run.

    Attributes:
      missing: Bytes that would be sent; None when not asked.
      error: Why it cannot be used; empty when it can.
    """

    target: Target
    python: str = ""
    missing: int | None = None
    holders: tuple[Holder, ...] = ()
    error: str = ""
    hint: str = ""


async def start(
    hosts: host_connections.Hosts, request: Request, kept: Kept | None = None
) -> AsyncGenerator[Event | Record, None]:
    """Start a run; yield its record, and then its events.

    Args:
      kept: Connections of earlier runs, where those of this one stay too; it must belong to the running loop.

    Raises:
      PackError: The directory cannot be packed; nothing was started.
      ConfigError: The request is not valid.
    """
    name = request.name or records.default_name()
    record = Record(
        id=records.new_id(name),
        name=name,
        command=request.command,
        targets=hosts.targets,
        logs=str((request.logs / name).absolute()),
        detached=request.detach,
        connection=hosts.connection,
        started=time.time(),
    )
    # In a service's pod the TPU belongs to the service's worker.
    free = not request.keep_tpu and hosts.connection["kind"] == "ssh"
    async with _packing(request) as packing, host_connections.connecting(hosts.connection, kept) as sessions:
        # Connecting takes as long as packing, and most of it is done by others.
        sessions.open_ahead(hosts.targets)
        packed = await packing
        plan = Plan(packed, request.keep_going, request.grace, request.relay, free_tpu=free, lease=request.lease)
        runner = Runner(record, sessions, plan)
        yield record
        if packed is not None:
            sent = f"{count(len(packed.files), 'file')}, {size(packed.size)}"
            yield Note(f"{packed.root}: {sent}, to {count(len(hosts.targets), 'host')}.")
            for each in packed.skipped:
                yield Note(f"Not sent: {each}")
        async with contextlib.aclosing(runner.events()) as events:
            async for event in events:
                yield event


async def attach(record: Record, *, stop: bool = False) -> AsyncGenerator[Event, None]:
    """Continue to follow a run, and end it if `stop`.

    Raises:
      MultihostError: Another process of this machine follows it.
    """
    async with host_connections.connecting(record.connection) as sessions:
        # Leaving off must not end what another process started.
        runner = Runner(record, sessions, owner=False)
        if stop:
            runner.stopping.set()
        async with contextlib.aclosing(runner.events()) as events:
            async for event in events:
                yield event


async def stop(record: Record) -> tuple[HostStatus, ...]:
    """End a run on all hosts, fetch the rest of its output, and return how it ended."""
    if record.attended:
        # The process that follows the run has its log files open; it sees the end and keeps the output. The hosts are
        # asked too, because that process may hang.
        record.ask_to_stop()
        await _ask(record, lambda session: session.stop(record.on(session.target)))
        for _ in range(_END_POLLS):
            if not record.attended:
                break
            await asyncio.sleep(_POLL_SECONDS)
        record = records.read(record.id)
        return await status(record) if record.code is None else records.read_states(record).hosts
    hosts: tuple[HostStatus, ...] = ()
    async for event in attach(record, stop=True):
        if isinstance(event, Ended):
            hosts = event.hosts
    return hosts


def last_known(record: Record) -> tuple[HostStatus, ...]:
    """Return the hosts of a run that is no longer followed, as they were then; none if nothing was started."""
    known = records.read_states(record)
    return known.hosts if known.at else ()


async def status(record: Record) -> tuple[HostStatus, ...]:
    """Ask all hosts for the state of a run."""

    async def ask(session: HostSession) -> HostStatus:
        known, outcome = await session.status(record.on(session.target))
        return _status(session.target, record, known, outcome)

    found = await _ask(record, ask)
    hosts = tuple(
        each if isinstance(each, HostStatus) else HostStatus(target, Phase.LOST, message=str(each), hint=each.hint)
        for target, each in zip(record.targets, found, strict=True)
    )
    if not record.attended:
        records.write_states(record, hosts)
    if record.code is None and not record.attended and all(host.code is not None for host in hosts):
        replace(record, code=worst(hosts), ended=time.time()).save()
    return hosts


async def fetch(record: Record) -> None:
    """Bring the log files up to date, unless another process does that."""
    if record.attended or record.ended:
        return

    async def read(session: HostSession) -> None:
        log = HostLog(record.log(session.target), fresh=False)
        try:
            while data := await session.read(record.on(session.target), log.size):
                log.add(data)
        finally:
            log.close()

    with record.attending():
        await _ask(record, read)


async def refresh(record: Record) -> None:
    """Ask all hosts for states and output, unless another process follows the run and so keeps both up to date."""
    if not record.attended and record.code is None:
        await fetch(record)
        await status(record)


async def examine(
    hosts: host_connections.Hosts, request: Request | None = None
) -> tuple[Packed | None, tuple[HostReport, ...]]:
    """Connect to all hosts and change nothing; with a request, find out what it would send."""
    packed = await asyncio.to_thread(pack, request.directory, request.exclude) if request and request.send else None
    sizes = {each.content: each.size for each in packed.files} if packed else {}

    async def look(session: HostSession) -> HostReport:
        missing = sum(sizes[each] for each in await session.lacking(packed)) if packed else None
        held = await session.holders(stop=False, grace=0)
        return HostReport(session.target, session.python, missing, held)

    async with host_connections.connecting(hosts.connection) as sessions:
        found = await asyncio.gather(*(_on(target, sessions, look) for target in hosts.targets))
    return packed, tuple(
        each if isinstance(each, HostReport) else HostReport(target, error=str(each), hint=each.hint)
        for target, each in zip(hosts.targets, found, strict=True)
    )


@contextlib.asynccontextmanager
async def _packing(request: Request) -> AsyncIterator[asyncio.Future[Packed | None]]:
    """Pack what `request` sends, if anything, in a thread; yield the future result."""
    loop = asyncio.get_running_loop()
    packing: asyncio.Future[Packed | None] = loop.create_future()
    if request.send:
        # Unlike asyncio.to_thread() it begins at once, beside what is imported meanwhile.
        packing = loop.run_in_executor(None, pack, request.directory, request.exclude)
    else:
        packing.set_result(None)
    try:
        yield packing
    finally:
        packing.cancel()
        # Its own error counts less than the one that ended the block early.
        await asyncio.gather(packing, return_exceptions=True)


def _status(target: Target, record: Record, known: bool, outcome: Outcome | None) -> HostStatus:
    last = last_line(record.log(target))
    if not known:
        return HostStatus(target, Phase.FAILED, message="It was not started on this host.")
    if outcome is None:
        return HostStatus(target, Phase.RUNNING, last_line=last, began=record.started)
    phase = {"exited": Phase.EXITED, "stopped": Phase.STOPPED}.get(outcome.why, Phase.LOST)
    ended = 0.0 if outcome.seconds is None else record.started + outcome.seconds
    return HostStatus(target, phase, last_line=last, code=outcome.code, began=record.started, ended=ended)


async def _ask(record: Record, question: Callable[[HostSession], Awaitable[Answer]]) -> list[Answer | HostError]:
    async with host_connections.connecting(record.connection) as sessions:
        return await asyncio.gather(*(_on(target, sessions, question) for target in record.targets))


async def _on(
    target: Target, sessions: Sessions, question: Callable[[HostSession], Awaitable[Answer]]
) -> Answer | HostError:
    """Return the answer of one host, or its error."""
    try:
        session = await sessions.open(target)
        try:
            return await question(session)
        finally:
            await sessions.release(session)
    except HostError as error:
        return error
