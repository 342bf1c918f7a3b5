"""Commands on runs, for the magics and the command line: start, attach, stop, refresh."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.multihost import host_connections, records
from pathways_jupyter.multihost.errors import MultihostError, RunIsFollowed
from pathways_jupyter.multihost.host_connections import Hosts, IdleConnections
from pathways_jupyter.multihost.records import RunRecord
from pathways_jupyter.multihost.run import Runner, RunRequest
from pathways_jupyter.multihost.run_events import Event, HostStatus, RunEnded

_POLL_SECONDS = 0.1
_STOP_SECONDS = 60.0
"""Longest wait for the process that follows a run, in addition to the run's grace."""
_MOST_IN_A_SECOND = 100


async def start(
    hosts: Hosts, request: RunRequest, idle: IdleConnections | None = None
) -> AsyncGenerator[Event | RunRecord, None]:
    """Start a run; yield its record, and then its events.

    Args:
      idle: Connections of earlier runs, where those of this one stay too; it must belong to the running loop.

    Raises:
      PackError: The directory cannot be packed; nothing was started.
      ConfigError: The request is not valid, or a run of the same name and logs is still going on.
    """
    name = request.name or _unused_name(request.logs)
    logs = str((request.logs / name).absolute())
    if any(each.logs == logs and each.attended for each in records.runs()):
        # Both would write the same files, here and on the hosts.
        raise ConfigError(
            f"A run {name} with the same logs is still followed on this machine.",
            hint=advice("Choose another --run-name, or end it: {multihost_stop:{name}}", name=name),
        )
    record = RunRecord(
        id=records.new_id(name),
        name=name,
        command=request.command,
        targets=hosts.targets,
        logs=logs,
        grace=request.grace,
        detached=request.detach,
        connection=hosts.connection,
        started=time.time(),
    )
    async with host_connections.connecting(hosts.connection, idle) as connections:
        # First, so that an interrupt while the hosts are being prepared can show what it has ended.
        yield record
        async with contextlib.aclosing(Runner(record, connections, request).events()) as events:
            async for event in events:
                yield event


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


async def attach(record: RunRecord, *, stop: bool = False) -> AsyncGenerator[Event, None]:
    """Continue to follow a run, and end it if `stop`.

    Raises:
      MultihostError: Another process of this machine follows it.
    """
    async with host_connections.connecting(record.connection) as connections:
        runner = Runner(record, connections)
        if stop:
            runner.stopping.set()
        async with contextlib.aclosing(runner.events()) as events:
            async for event in events:
                yield event


async def stop(record: RunRecord) -> tuple[HostStatus, ...]:
    """End a run on all hosts, fetch the rest of its output, and return how it ended.

    Raises:
      MultihostError: The process that follows it does not react.
    """
    hosts: tuple[HostStatus, ...] = ()
    if not record.attended:
        async for event in attach(record, stop=True):
            if isinstance(event, RunEnded):
                hosts = event.hosts
        return hosts
    # The process that follows the run has its log files open; it ends the run and keeps the output.
    record.request_stop()
    seconds = record.grace + _STOP_SECONDS
    give_up_at = time.monotonic() + seconds
    while record.attended:
        if time.monotonic() > give_up_at:
            raise MultihostError(
                f"The process that follows run {record.name} has not ended it after {seconds:.0f} s.",
                hint=advice("End that process, and {multihost_stop} ends the run."),
            )
        await asyncio.sleep(_POLL_SECONDS)
    return await refresh(records.read(record.id))


async def refresh(record: RunRecord) -> tuple[HostStatus, ...]:
    """Bring states and logs of a run up to date, unless another process does so all the time; return the states."""
    if not record.attended and not record.ended:
        with contextlib.suppress(RunIsFollowed):
            async with host_connections.connecting(record.connection) as connections:
                return await Runner(record, connections).refresh()
    return records.read(record.id).states
