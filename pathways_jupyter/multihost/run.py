"""A command on many hosts: send the directory, start everywhere, bring the output back, end everything."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pathways_jupyter.multihost import records
from pathways_jupyter.multihost.errors import HostError
from pathways_jupyter.multihost.hostrun import HostRun
from pathways_jupyter.multihost.hostsession import Sessions
from pathways_jupyter.multihost.output import HostLog
from pathways_jupyter.multihost.pack import Packed
from pathways_jupyter.multihost.records import Record
from pathways_jupyter.multihost.relay import Relay
from pathways_jupyter.multihost.run_events import Ended, Event, HostStatus, Note, Phase, worst
from pathways_jupyter.multihost.spool import Spool

LEASE_SECONDS = 180.0
"""Longer than a client tries to reconnect."""
OUTPUT_BYTES = 1024**3
"""The most output that is kept on a host."""
_QUEUED_EVENTS = 64
_STOP_SECONDS = 30.0
_WRITE_SECONDS = 0.5


@dataclass(frozen=True)
class Plan:
    """How a new run goes.

    Attributes:
      packed: What to send; None to use the directory that is on the hosts.
      keep_going: Whether one host's failure leaves the others running.
      grace: Seconds between SIGTERM and SIGKILL.
      relay: Whether hosts pass the files on to each other.
      free_tpu: End what holds the TPU on the hosts first.
      lease: Seconds that a run which is not detached goes on on a host without a client.
    """

    packed: Packed | None
    keep_going: bool = False
    grace: float = 10.0
    relay: bool = False
    free_tpu: bool = False
    lease: float = LEASE_SECONDS


class Runner:
    """Follows one run, a new one with `plan`, or one that was started before.

    Args:
      owner: Whether the run ends with this runner, unless it is detached.

    Attributes:
      stopping: Set it to end the run everywhere.
    """

    def __init__(self, record: Record, sessions: Sessions, plan: Plan | None = None, *, owner: bool = True) -> None:
        self.record = record
        self.stopping = asyncio.Event()
        self._plan = plan
        self._owner = owner and not record.detached
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(_QUEUED_EVENTS)
        self._muted = False
        self._started = plan is None
        self._hosts = []
        for known in records.read_states(record).hosts:
            log = HostLog(record.log(known.target), fresh=plan is not None)
            # What has become of it since is asked on the host.
            before = HostStatus(known.target, began=known.began, last_line=log.last_line)
            self._hosts.append(HostRun(before, sessions, log, self._publish, self._hint_at))

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
            if self._plan is not None:
                # Before anything is sent, so that others see it from the beginning.
                self.record.save()
            work = asyncio.create_task(self._work())
            writing = asyncio.create_task(self._serve_others())
            try:
                while (event := await self._queue.get()) is not None:
                    yield event
                await work
            finally:
                if not work.done():
                    await self._abandon(work)
                writing.cancel()
                if self._started or self.record.code is not None:
                    records.write_states(self.record, self.hosts)
                else:
                    self.record.forget()

    async def _work(self) -> None:
        try:
            if self._plan is not None and not await self._begin(self._plan):
                self._finish(worst(self.hosts))
            elif self._plan is not None and self.record.detached:
                await self._publish(Ended(self.hosts, None))
                return
            else:
                await self._follow()
            assert self.record.code is not None
            await self._publish(Ended(self.hosts, self.record.code))
        finally:
            await asyncio.gather(*(host.close() for host in self._hosts), return_exceptions=True)
            await self._queue.put(None)

    async def _begin(self, plan: Plan) -> bool:
        """Prepare all hosts, and only then start on all; return whether something runs."""
        name = self.record.name
        relay = Relay(self._publish) if plan.relay else None
        with Spool(plan.packed) if plan.packed is not None else contextlib.nullcontext() as spool:
            preparing = [host.prepare(plan.packed, spool, name, relay) for host in self._hosts]
            ready = await self._unless_stopped(_all(preparing))
        if relay is not None:
            await relay.close()
        if self.stopping.is_set():
            await _all([host.stopped() for host in self._hosts])
            await self._publish(Note("Stopped before it began."))
            return False
        if plan.free_tpu and (all(ready) or plan.keep_going):
            ready = await _all([self._free(host, plan) for host in self._hosts])
        usable = [host for host, good in zip(self._hosts, ready, strict=True) if good]
        if not usable or (len(usable) < len(self._hosts) and not plan.keep_going):
            await self._publish(Note("Nothing was started."))
            return False
        self._started = True
        self.record = replace(self.record, started=time.time())
        self.record.save()
        started = await _all([host.start(self._spec(host, plan)) for host in usable])
        if not all(started) and not plan.keep_going:
            self.stopping.set()
            await self._follow()
            return False
        return any(started)

    async def _unless_stopped(self, work: Awaitable[list[Any]]) -> list[Any]:
        """Return the result of `work`; cancel it when the run is to end, and return nothing."""
        task = asyncio.ensure_future(work)
        stopping = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else []
        finally:
            for each in (task, stopping):
                each.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)

    async def _free(self, host: HostRun, plan: Plan) -> bool:
        if host.status.phase.over:
            return False
        try:
            for each in await host.holders(stop=True, grace=plan.grace):
                await self._publish(
                    Note(f"{host.target.name}: ended {each.pid}, which held {each.device}: {each.command}")
                )
        except HostError as error:
            await host.fail(error)
            return False
        return True

    async def _follow(self) -> None:
        await _all([self._follow_host(host) for host in self._hosts if not host.status.phase.over])
        self._finish(worst(self.hosts))

    async def _follow_host(self, host: HostRun) -> None:
        await host.follow(self.record.on(host.target), self.stopping)
        if host.status.exit_code and self._plan is not None and not self._plan.keep_going:
            if not self.stopping.is_set() and len(self._hosts) > 1:
                await self._publish(Note(f"{host.target.name} failed; the others are ended."))
            self.stopping.set()

    def _finish(self, code: int) -> None:
        if any(host.phase is Phase.LOST and host.code is None for host in self.hosts):
            # It may still run there, so it can be attached to again.
            code, ended = worst(self.hosts), 0.0
        else:
            ended = time.time()
        self.record = replace(self.record, code=code, ended=ended)
        self.record.save()

    def _spec(self, host: HostRun, plan: Plan) -> dict[str, Any]:
        target = host.target
        slices = sorted({each.slice for each in self.record.targets})
        workers = sum(each.slice == target.slice for each in self.record.targets)
        return {
            "run": self.record.on(target),
            "command": self.record.command,
            "cwd": self.record.name,
            "env": {
                "SLICE": str(target.slice),
                "WORKER": str(target.worker),
                "SLICES": str(len(slices)),
                "WORKERS": str(workers),
                "RUN_NAME": self.record.name,
            },
            "grace": plan.grace,
            "lease": 0.0 if self.record.detached else plan.lease,
            "limit": OUTPUT_BYTES,
        }

    async def _abandon(self, work: asyncio.Task[None]) -> None:
        """End a run whose reader has gone: on the hosts too, unless it is detached."""
        self._muted = True
        # Hosts that wait for room in the queue must go on to see the end.
        drain = asyncio.create_task(_drain(self._queue))
        grace = self._plan.grace if self._plan else 0.0
        try:
            if self._started and self._owner:
                self.stopping.set()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace + _STOP_SECONDS):
                        await asyncio.shield(work)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        finally:
            drain.cancel()

    async def _serve_others(self) -> None:
        """Keep the file with the states of the hosts up to date, and end the run when another process asks for it."""
        written = None
        while True:
            if self.record.stop_asked:
                self.stopping.set()
            if (now := self.hosts) != written:
                records.write_states(self.record, now)
                written = now
            await asyncio.sleep(_WRITE_SECONDS)

    async def _publish(self, event: Event) -> None:
        if not self._muted:
            await self._queue.put(event)

    def _hint_at(self, event: Event) -> None:
        if not self._muted and self._queue.qsize() < _QUEUED_EVENTS // 2:
            self._queue.put_nowait(event)


async def _all(work: Sequence[Awaitable[Any]]) -> list[Any]:
    """Do all of `work` at once; the first error cancels the rest."""
    async with _group() as group:
        tasks = [group.create_task(_once(each)) for each in work]
    return [task.result() for task in tasks]


async def _once(work: Awaitable[Any]) -> Any:
    return await work


@contextlib.asynccontextmanager
async def _group() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises its first error itself, without a group around it."""
    first: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        first = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
    if first is not None:
        # Out here, because IPython shows an error with a group in its context as Python does, with a whole traceback.
        raise first


async def _drain(queue: asyncio.Queue[Event | None]) -> None:
    while True:
        await queue.get()
