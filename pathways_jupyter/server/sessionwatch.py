"""The sessions of this machine, followed while a page is open: their records, and their supervisors' events.

A session's record and its supervisor are gone the moment it has ended, which is when people want to read why. So the
events of sessions that were followed here are kept a while longer, in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import time
from typing import Any

from pathways_jupyter import tpu
from pathways_jupyter.config import runtime_dir
from pathways_jupyter.errors import ConfigError, PathwaysError
from pathways_jupyter.events import SessionState
from pathways_jupyter.server import scope
from pathways_jupyter.service import discovery
from pathways_jupyter.service.listeners import Listener, Listeners
from pathways_jupyter.session import client, registry
from pathways_jupyter.session.registry import SessionRecord

LOOK_SECONDS = 0.25
"""Between two looks at the directory of records; no system call waits for a change on every system we run on."""
RETRY_SECONDS = 1.0
"""Before the events of a session are asked for again, after that failed."""
REMEMBERED = 1000
"""Events of each session that are kept."""
ENDED = 20
"""Ended sessions that are kept."""

logger = logging.getLogger(__name__)


class SessionWatch:
    """Publishes sessions and their events to listeners."""

    def __init__(self) -> None:
        self._listeners = Listeners()
        self._task: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._events: dict[str, list[dict[str, Any]]] = {}
        self._rows: list[dict[str, Any]] = []
        self._ended: dict[str, dict[str, Any]] = {}
        self._seen: object = None

    async def add(self, listener: Listener) -> None:
        """Send `listener` what is known, and every change from now on. What it raises ends its own membership only."""
        # First of all, so that a page that is closed during the first look is removed, and not added after its end.
        self._listeners.add(listener)
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        await self._looked.wait()
        if listener not in self._listeners:
            return
        self._listeners.send(listener, self._sessions())
        for session, events in list(self._events.items()):
            if listener in self._listeners:
                self._listeners.send(listener, _message(session, events, reset=True))

    def remove(self, listener: Listener) -> None:
        """Send `listener` nothing more; nothing is watched after the last one was removed."""
        self._listeners.remove(listener)
        if not self._listeners:
            self._stop()

    def close(self) -> None:
        """Stop watching."""
        self._listeners.clear()
        self._stop()

    def _stop(self) -> None:
        for task in (self._task, *self._followers.values()):
            if task is not None:
                task.cancel()
        self._task, self._seen = None, None
        self._followers.clear()
        # What is kept of ended sessions stays: a page that is loaded again is a page that left and a new one.
        self._events = {session: events for session, events in self._events.items() if session in self._ended}
        self._rows = []
        # Callers of add() that still wait have been removed, and return.
        self._looked.set()
        self._looked = asyncio.Event()

    async def _watch(self) -> None:
        while True:
            try:
                await self._look()
            except Exception:
                # E.g. the directory cannot be read at the moment. The next look may succeed.
                logger.exception("looking at the sessions of this machine")
                self._seen = None
                await asyncio.sleep(RETRY_SECONDS)
            self._looked.set()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        """Read the records if one was written or removed, or a follower ended, since the last time."""
        seen = _state_of_directory()
        if seen == self._seen:
            return
        self._seen = seen
        # Only of this machine: supervisors of another one with the same home directory cannot be followed from here.
        records = [record for record in await asyncio.to_thread(registry.sessions) if record.is_here]
        alive = await asyncio.gather(*(asyncio.to_thread(registry.is_alive, record) for record in records))
        for record, living in zip(records, alive, strict=True):
            if living and record.id not in self._followers:
                self._followers[record.id] = asyncio.create_task(self._follow(record))
        rows = [row(record, living) for record, living in zip(records, alive, strict=True)]
        ended = self._keep_ended({record.id for record in records})
        if ended or rows != self._rows:
            self._rows = rows
            self._listeners.publish(self._sessions())

    def _keep_ended(self, present: set[str]) -> bool:
        """Keep what was followed of sessions that are not `present` any more; whether there are new ones."""
        gone = [row for row in self._rows if row["id"] not in present and row["id"] in self._events]
        for each in gone:
            over = {"state": SessionState.CLOSED, "state_since": time.time(), "alive": False, "slices": []}
            self._ended[each["id"]] = {**each, **over}
        for session in list(self._ended)[:-ENDED]:
            del self._ended[session]
            self._events.pop(session, None)
        return bool(gone)

    async def _follow(self, record: SessionRecord) -> None:
        """Follow the events of a session until its supervisor is gone, whatever happens to the connection."""
        events = self._events.setdefault(record.id, [])
        since = time.time()
        try:
            while True:
                try:
                    await self._follow_once(record, events, since)
                except PathwaysError as error:
                    logger.info("events of session %s: %s", record.id, error)
                except Exception:
                    logger.exception("events of session %s", record.id)
                if not await asyncio.to_thread(registry.is_alive, record):
                    break
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            # After a stop and a new start the session may have another follower already.
            if self._followers.get(record.id) is asyncio.current_task():
                del self._followers[record.id]
            # The record, if there is one, says what is left; the next look reads it.
            self._seen = None

    async def _follow_once(self, record: SessionRecord, events: list[dict[str, Any]], since: float) -> None:
        # A supervisor sends the events that it remembers first. When it is asked again, most of them are known.
        known = list(events)
        async with contextlib.aclosing(client.follow(record)) as history:
            async for event in history:
                value = event.to_json()
                if value in known:
                    continue
                events.append(value)
                del events[:-REMEMBERED]
                # What happened before anyone followed is history, and no news.
                self._listeners.publish(_message(record.id, [value], news=event.at >= since))

    def _sessions(self) -> dict[str, Any]:
        return {"type": "sessions", "sessions": self._rows, "ended": list(self._ended.values())}


def _message(session: str, events: list[dict[str, Any]], *, reset: bool = False, news: bool = False) -> dict[str, Any]:
    return {"type": "events", "session": session, "reset": reset, "news": news, "events": list(events)}


def row(record: SessionRecord, alive: bool) -> dict[str, Any]:
    """Return what a page shows of a session."""
    return {
        "id": record.id,
        "state": record.state,
        "state_since": record.state_since,
        "slices": [dataclasses.asdict(each) for each in record.slices],
        "alive": alive,
        "kernel_id": record.kernel_id,
        "notebook": record.notebook,
        "user": record.user,
        "namespace": record.namespace,
        "service": discovery.name_of(record.service)[0] or record.service,
        "instances": dict(record.instances),
        "devices": sum(count * _chips(name) for name, count in record.instances.items()),
        "job": record.job,
        "pod": record.pod,
        "created": record.created,
        "scope": scope.of_record(record).to_json(),
    }


def _chips(instance_type: str) -> int:
    try:
        return tpu.parse_instance_type(instance_type).chips
    except ConfigError:
        return 0


def _state_of_directory() -> object:
    found = []
    with os.scandir(runtime_dir()) as entries:
        for entry in entries:
            # A record may be removed between being listed and being looked at.
            with contextlib.suppress(FileNotFoundError):
                if entry.name.endswith(".json"):
                    found.append((entry.name, entry.stat().st_mtime_ns))
    return sorted(found)
