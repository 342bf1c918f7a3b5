"""A command on many hosts: send the directory, start everywhere, bring the output back, end everything."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import count, size, some
from pathways_jupyter.multihost.host_connections import Connections
from pathways_jupyter.multihost.hostrun import HostRun
from pathways_jupyter.multihost.output import HostLog
from pathways_jupyter.multihost.pack import Packed, Sending
from pathways_jupyter.multihost.records import RunRecord
from pathways_jupyter.multihost.run_events import Event, HostPhase, HostStatus, Note, RunEnded, worst

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
_WRITE_SECONDS = 0.5


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
      lease: Seconds that a run which is not detached goes on on a host without a client.
    """

    command: str
    directory: Path = Path()
    name: str = ""
    exclude: tuple[str, ...] = ()
    send: bool = True
    logs: Path = field(default_factory=lambda: Path(LOG_FOLDER))
    keep_going: bool = False
    detach: bool = False
    grace: float = 10.0
    lease: float = LEASE_SECONDS
    free_chips: bool = False


class Runner:
    """Follows one run: a new one with `request`, which ends with it unless it is detached, or one started before.

    Attributes:
      stopping: Set it to end the run everywhere.
    """

    def __init__(self, record: RunRecord, connections: Connections, request: RunRequest | None = None) -> None:
        self.record = record
        self.stopping = asyncio.Event()
        self._request = request
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(_QUEUED_EVENTS)
        self._muted = False
        self._started = request is None
        self._hosts = []
        for status in record.states:
            log = HostLog(record.log(status.target), fresh=request is not None)
            # What has become of it since has to be read from the host.
            began = status.began if request else status.began or record.started
            before = HostStatus(status.target, began=began, last_line=log.last_line)
            self._hosts.append(HostRun(before, record.on(status.target), connections, log, self._publish))

    @property
    def hosts(self) -> tuple[HostStatus, ...]:
        """All hosts as they are now."""
        return tuple(host.status for host in self._hosts)

    async def events(self) -> AsyncGenerator[Event, None]:
        """Do the run and yield its events. Closing this ends the run on all hosts, unless it is detached.

        Raises:
          PackError: A file changed while it was packed or sent; nothing was started.
        """
        with self.record.attending():
            if self._request is not None:
                # Before anything is sent, so that others see it from the beginning.
                self.record.save()
            work = asyncio.create_task(self._work())
            serving = asyncio.create_task(self._serve_others())
            try:
                while (event := await self._queue.get()) is not None:
                    yield event
                await work
            finally:
                if not work.done():
                    await self._abandon(work)
                serving.cancel()
                if self._started or self.record.code is not None:
                    with contextlib.suppress(ConfigError):
                        self._save()
                else:
                    self.record.forget()

    async def refresh(self) -> tuple[HostStatus, ...]:
        """Bring the logs and the states of the hosts up to date, once, and return the states.

        Raises:
          RunIsFollowed: Another process of this machine does that all the time.
        """
        self._muted = True
        with self.record.attending():
            try:
                await _all(host.follow() for host in self._hosts)
            finally:
                await asyncio.gather(*(host.close() for host in self._hosts), return_exceptions=True)
            # One that is out of reach may still run.
            if all(host.code is not None or host.phase is HostPhase.FAILED for host in self.hosts):
                self._finish()
            else:
                self._save()
        return self.hosts

    async def _work(self) -> None:
        try:
            if self._request is None:
                await self._follow()
            elif not await self._begin(self._request):
                self._finish()
            elif self.record.detached:
                await self._publish(RunEnded(self.hosts, None))
                return
            else:
                await self._follow()
            await self._publish(RunEnded(self.hosts, self.record.code))
        finally:
            await asyncio.gather(*(host.close() for host in self._hosts), return_exceptions=True)
            await self._queue.put(None)

    async def _begin(self, request: RunRequest) -> bool:
        """Prepare all hosts, and only then start on all; return whether something runs."""
        logs = (request.logs, Path(self.record.logs))
        with Sending(request.directory, request.exclude, logs) if request.send else contextlib.nullcontext() as sending:
            work = [host.prepare(sending, self.record.name) for host in self._hosts]
            prepared, _ = await tasks.first_done(_all([self._announce(sending), *work]), self.stopping.wait())
            _, *ready = prepared.result() if prepared is not None else [True]
        if self.stopping.is_set():
            await _all(host.stopped() for host in self._hosts)
            await self._publish(Note("Stopped before it began."))
            return False
        usable = [host for host, good in zip(self._hosts, ready, strict=True) if good]
        if not usable or (len(usable) < len(self._hosts) and not request.keep_going):
            await self._publish(Note("Nothing was started."))
            return False
        self._started = True
        self._save(started=time.time())
        started = await _all(host.start(self._spec(host, request)) for host in usable)
        if not all(started) and not request.keep_going:
            # Those that have started are ended again, which is followed like any other end.
            self.stopping.set()
            await self._follow()
            return False
        return any(started)

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
        async def follow(host: HostRun) -> None:
            await host.follow(self.stopping)
            if host.status.exit_code and self._request is not None and not self._request.keep_going:
                if not self.stopping.is_set() and len(self._hosts) > 1:
                    await self._publish(Note(f"{host.target.name} failed; the others are ended."))
                self.stopping.set()

        await _all(follow(host) for host in self._hosts if not host.status.phase.over)
        self._finish()

    def _finish(self) -> None:
        # Where it was lost it may still run, and can be attached to again.
        lost = any(host.phase is HostPhase.LOST and host.code is None for host in self.hosts)
        self._save(code=worst(self.hosts), ended=0.0 if lost else time.time())

    def _save(self, **values: Any) -> None:
        self.record = self.record.with_states(self.hosts, **values)

    def _spec(self, host: HostRun, request: RunRequest) -> dict[str, Any]:
        targets = self.record.targets
        return {
            "command": request.command,
            "cwd": self.record.name,
            "env": {
                "SLICE": str(host.target.slice),
                "WORKER": str(host.target.worker),
                "SLICES": str(len({each.slice for each in targets})),
                "WORKERS": str(sum(each.slice == host.target.slice for each in targets)),
                "RUN_NAME": self.record.name,
            },
            "grace": self.record.grace,
            "lease": 0.0 if self.record.detached else request.lease,
            "limit": OUTPUT_BYTES,
            # In a pod of a service, the worker has them, and must keep them.
            "chips": () if host.target.pod else CHIPS,
            "free": request.free_chips,
        }

    async def _abandon(self, work: asyncio.Task[None]) -> None:
        """End a run whose reader has gone: on the hosts too, unless it is detached."""
        self._muted = True

        async def drain() -> None:
            while True:
                await self._queue.get()

        # Hosts that wait for room in the queue must go on to see the end.
        if self._started and self._request is not None and not self.record.detached:
            self.stopping.set()
            await tasks.first_done(work, drain(), seconds=self.record.grace + _STOP_SECONDS)
        work.cancel()
        await tasks.first_done(work, drain())

    async def _serve_others(self) -> None:
        """Keep the record's states up to date, and end the run when another process asks for it."""
        while True:
            if self.record.stop_requested:
                self.stopping.set()
            if self.hosts != self.record.hosts:
                # A full disk is no error here: the run itself is not affected.
                with contextlib.suppress(ConfigError):
                    self._save()
            await asyncio.sleep(_WRITE_SECONDS)

    async def _publish(self, event: Event) -> None:
        if not self._muted:
            await self._queue.put(event)


def _largest(packed: Packed) -> str:
    largest = sorted(packed.files, key=lambda each: -each.size)[:3]
    return ", ".join(f"{each.path} ({size(each.size)})" for each in largest)


async def _all(work: Iterable[Coroutine[Any, Any, Answer]]) -> list[Answer]:
    """Do all of `work` at once; the first error cancels the rest."""
    async with tasks.group() as group:
        running = [group.create_task(each) for each in work]
    return [each.result() for each in running]
