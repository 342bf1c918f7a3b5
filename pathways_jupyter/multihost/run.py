"""A command on many hosts: send the directory, start everywhere, bring the output back, end everything.

A run belongs to the client that has started it: it ends with it, on all hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import AsyncGenerator, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import count, size, some
from pathways_jupyter.multihost import host_connections
from pathways_jupyter.multihost.host_connections import Connections, IdleConnections
from pathways_jupyter.multihost.hostrun import HostRun
from pathways_jupyter.multihost.output import HostLog
from pathways_jupyter.multihost.pack import Packed, Sending
from pathways_jupyter.multihost.run_events import Event, HostStatus, Note, RunEnded, worst
from pathways_jupyter.multihost.targets import Selection, Target

Answer = TypeVar("Answer")

LOG_FOLDER = "multihost-runs"
LEASE_SECONDS = 180.0
"""Longer than a client tries to reconnect."""
CHIPS = ("/dev/accel", "/dev/vfio/")
"""Prefixes of the paths of TPU chips."""
OUTPUT_BYTES = 1024**3
"""The most output that is kept on a host."""
_LARGE_BYTES = 100_000_000
"""More than code; what is named then is often data that was not meant."""
_QUEUED_EVENTS = 64
_STOP_SECONDS = 30.0
_MOST_IN_A_SECOND = 100
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class RunRequest:
    """A run that the user wants.

    Attributes:
      command: For a shell on the hosts.
      directory: What is sent.
      name: The run directory on the hosts; the time when empty.
      send: Whether to send anything; otherwise the run directory must be on the hosts.
      logs: Parent of the directory with the logs.
      keep_going: Whether one host's failure leaves the others running.
      grace: Seconds between SIGTERM and SIGKILL.
      free_chips: Whether to end what holds the hosts' TPU chips first.
      lease: Seconds that the run goes on on a host without its client.
    """

    command: str
    directory: Path = Path()
    name: str = ""
    exclude: tuple[str, ...] = ()
    send: bool = True
    logs: Path = field(default_factory=lambda: Path(LOG_FOLDER))
    keep_going: bool = False
    grace: float = 10.0
    lease: float = LEASE_SECONDS
    free_chips: bool = False


@dataclass(frozen=True)
class Run:
    """A run on its hosts.

    Attributes:
      id: Unique.
      name: The run directory on the hosts; several runs may use the same one.
      command: What runs, for a shell.
      logs: Directory of this machine with the output of each host.
      started: Seconds since the epoch.
    """

    id: str
    name: str
    command: str
    targets: tuple[Target, ...]
    logs: Path
    started: float = 0.0

    def on(self, target: Target) -> str:
        """Return the id of the run on `target`; unique also where hosts share a home directory or are one machine."""
        return f"{self.id}.{target.label}"

    def log(self, target: Target) -> Path:
        """Return the file with the output of `target`."""
        return self.logs / target.log_name


async def start(
    selection: Selection, request: RunRequest, idle: IdleConnections | None = None
) -> AsyncGenerator[Event | Runner, None]:
    """Start a run; yield the runner, and then its events. Closing this ends the run on all hosts.

    Args:
      idle: Connections of earlier runs, where those of this one stay too; it must belong to the running loop.

    Raises:
      PackError: The directory cannot be packed; nothing was started.
      ConfigError: The request is not valid, or the hosts cannot be found.
      MultihostError: A run of the same name and logs goes on.
    """
    if request.name and not _NAME.fullmatch(request.name):
        raise ConfigError(
            f"{request.name!r} cannot be the name of a run.", hint="Use letters, digits, dots, dashes and underscores."
        )
    async with host_connections.connecting(selection, idle) as (targets, connections):
        name = request.name or _unused_name(request.logs)
        logs = (request.logs / name).absolute()
        run = Run(f"{name}-{secrets.token_hex(4)}", name, request.command, targets, logs, started=time.time())
        runner = Runner(run, request, connections)
        # First, so that an interrupt while the hosts are being prepared can show what it has ended.
        yield runner
        async with contextlib.aclosing(runner.events()) as events:
            async for event in events:
                yield event


class Runner:
    """Does one run.

    Attributes:
      started: Whether the command was started anywhere.
    """

    def __init__(self, run: Run, request: RunRequest, connections: Connections) -> None:
        self.run, self.started = run, False
        self._request = request
        self._stopping = asyncio.Event()
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(_QUEUED_EVENTS)
        self._muted = False
        self._hosts = [
            HostRun(target, run.on(target), connections, HostLog(run.log(target)), self._publish)
            for target in run.targets
        ]

    @property
    def hosts(self) -> tuple[HostStatus, ...]:
        """All hosts as they are now; may be read from another thread."""
        return tuple(host.status for host in self._hosts)

    async def events(self) -> AsyncGenerator[Event, None]:
        """Do the run and yield its events. Closing this ends the run on all hosts.

        Raises:
          PackError: A file changed while it was packed or sent; nothing was started.
          MultihostError: A log could not be written; the run has ended.
        """
        work = asyncio.create_task(self._work())
        try:
            while (event := await self._queue.get()) is not None:
                yield event
            await work
        finally:
            if not work.done():
                await self._abandon(work)

    async def _work(self) -> None:
        try:
            if await self._begin():
                await self._follow()
            else:
                await _all(host.stopped() for host in self._hosts)
            await self._publish(RunEnded(self.hosts, worst(self.hosts)))
        finally:
            await asyncio.gather(*(host.close() for host in self._hosts), return_exceptions=True)
            await self._queue.put(None)

    async def _begin(self) -> bool:
        """Prepare all hosts, and only then start on all; return whether something was started."""
        request, run = self._request, self.run
        sent = (request.directory, request.exclude, (request.logs, run.logs))
        with Sending(*sent) if request.send else contextlib.nullcontext() as sending:
            work = [host.prepare(sending, run.name) for host in self._hosts]
            _, *ready = await _all([self._announce(sending), *work])
        usable = [host for host, good in zip(self._hosts, ready, strict=True) if good]
        if not usable or (len(usable) < len(self._hosts) and not request.keep_going):
            await self._publish(Note("Nothing was started."))
            return False
        self.started = True
        started = await _all(host.start(self._spec(host)) for host in usable)
        if not all(started) and not request.keep_going:
            # Those that have started are ended again, which is followed like any other end.
            self._stopping.set()
        return True

    async def _announce(self, sending: Sending | None) -> bool:
        """Say what is sent, once that is known."""
        if sending is not None:
            packed = await sending.packed()
            sent = f"{count(len(packed.files), 'file')}, {size(packed.size)}"
            most = f" Largest: {_largest(packed)}." if packed.size > _LARGE_BYTES else ""
            await self._publish(Note(f"{packed.root}: {sent}, to {count(len(self._hosts), 'host')}.{most}"))
            for reason, paths in packed.reasons.items():
                await self._publish(Note(f"Not sent, {reason}: {some(paths)}"))
        return True

    async def _follow(self) -> None:
        """Follow the run until its end on all hosts, which comes when it fails on one.

        Raises:
          MultihostError: A log could not be written.
        """

        async def follow(host: HostRun) -> None:
            await host.follow(self._stopping)
            if host.status.exit_code and not self._request.keep_going:
                if not self._stopping.is_set() and len(self._hosts) > 1:
                    await self._publish(Note(f"{host.target.name} failed; the others are ended."))
                self._stopping.set()

        await _all(follow(host) for host in self._hosts if not host.status.phase.over)
        for host in self._hosts:
            if host.problem is not None:
                raise host.problem

    def _spec(self, host: HostRun) -> dict[str, Any]:
        request, targets = self._request, self.run.targets
        return {
            "command": request.command,
            "cwd": self.run.name,
            "env": {
                "SLICE": str(host.target.slice),
                "WORKER": str(host.target.worker),
                "SLICES": str(len({each.slice for each in targets})),
                "WORKERS": str(sum(each.slice == host.target.slice for each in targets)),
                "RUN_NAME": self.run.name,
            },
            "grace": request.grace,
            "lease": request.lease,
            "limit": OUTPUT_BYTES,
            # In a pod of a service, the worker has them, and must keep them.
            "chips": () if host.target.pod else CHIPS,
            "free": request.free_chips,
        }

    async def _abandon(self, work: asyncio.Task[None]) -> None:
        """End a run whose reader has gone."""
        self._muted = True

        async def drain() -> None:
            while True:
                await self._queue.get()

        # Hosts that wait for room in the queue must go on to see the end.
        if self.started:
            self._stopping.set()
            await tasks.first_done(work, drain(), seconds=self._request.grace + _STOP_SECONDS)
        work.cancel()
        await tasks.first_done(work, drain())

    async def _publish(self, event: Event) -> None:
        if not self._muted:
            await self._queue.put(event)


def _unused_name(logs: Path) -> str:
    """Return the present second as the name of a run, with a number if another one has its logs there already."""
    now = time.strftime("%Y-%m-%d-%H-%M-%S")
    for name in (now, *(f"{now}-{number}" for number in range(2, _MOST_IN_A_SECOND))):
        # Made here, so that of two that start at once only one has it. Another problem comes with the first file in it.
        try:
            (logs / name).mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            break
        return name
    return now


def _largest(packed: Packed) -> str:
    largest = sorted(packed.files, key=lambda each: -each.size)[:3]
    return ", ".join(f"{each.path} ({size(each.size)})" for each in largest)


async def _all(work: Iterable[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """Do all of `work` at once; the first error cancels the rest."""
    async with tasks.group() as group:
        running = [group.create_task(each) for each in work]
    return [each.result() for each in running]
