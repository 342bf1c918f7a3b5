"""The sessions of this machine, followed while a page is open: their records, and their supervisors' events."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import time
from collections.abc import Callable
from typing import Any

from pathways_jupyter import tpu
from pathways_jupyter.config import runtime_dir
from pathways_jupyter.errors import ConfigError, PathwaysError
from pathways_jupyter.server import scope
from pathways_jupyter.service import discovery
from pathways_jupyter.session import client, registry
from pathways_jupyter.session.registry import SessionRecord

LOOK_SECONDS = 0.25
"""How often the directory of records is looked at; no system call waits for a change on every system we run on."""
REMEMBERED = 1000

Listener = Callable[[dict[str, Any]], None]

logger = logging.getLogger(__name__)


class SessionWatch:
    """Tells listeners of sessions and their events."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._events: dict[str, list[dict[str, Any]]] = {}
        self._rows: list[dict[str, Any]] = []
        self._seen: object = None

    async def add(self, listener: Listener) -> None:
        """Tells `listener` what is known, and every change from now on."""
        if self._task is None:
            await self._look()
            self._task = asyncio.create_task(self._watch())
        self._listeners.add(listener)
        listener({"type": "sessions", "sessions": self._rows})
        for session, events in self._events.items():
            listener(_told(session, events, reset=True))

    def remove(self, listener: Listener) -> None:
        """Tells `listener` nothing any more; nothing is looked at when it was the last."""
        self._listeners.discard(listener)
        if not self._listeners:
            self._stop()

    def close(self) -> None:
        """Stops following."""
        self._listeners.clear()
        self._stop()

    def _stop(self) -> None:
        for task in (self._task, *self._followed.values()):
            if task is not None:
                task.cancel()
        self._task, self._seen = None, None
        self._followed.clear()
        self._events.clear()
        self._rows = []

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._look()

    async def _look(self, *, again: bool = False) -> None:
        """Reads the records when one was written or removed since the last time."""
        seen = _state_of_directory()
        if seen == self._seen and not again:
            return
        self._seen = seen
        records = await asyncio.to_thread(registry.sessions)
        alive = await asyncio.gather(*(asyncio.to_thread(registry.is_alive, record) for record in records))
        for record, living in zip(records, alive, strict=True):
            if living and record.id not in self._followed:
                self._followed[record.id] = asyncio.create_task(self._follow(record))
        for session in set(self._events) - {record.id for record in records}:
            del self._events[session]
        rows = [row(record, living) for record, living in zip(records, alive, strict=True)]
        if rows != self._rows:
            self._rows = rows
            self._tell({"type": "sessions", "sessions": rows})

    async def _follow(self, record: SessionRecord) -> None:
        events = self._events[record.id] = []
        since = time.time()
        history = client.follow(record)
        try:
            # Remembered events come first: they are history, not news.
            async for event in history:
                events.append(event.to_json())
                del events[:-REMEMBERED]
                self._tell(_told(record.id, events[-1:], news=event.at >= since))
        except PathwaysError as error:
            logger.info("events of session %s: %s", record.id, error)
        # The supervisor is gone: its record, if there is one, says what is left.
        self._followed.pop(record.id, None)
        await self._look(again=True)

    def _tell(self, message: dict[str, Any]) -> None:
        for listener in list(self._listeners):
            listener(message)


def _told(session: str, events: list[dict[str, Any]], *, reset: bool = False, news: bool = False) -> dict[str, Any]:
    return {"type": "events", "session": session, "reset": reset, "news": news, "events": list(events)}


def row(record: SessionRecord, alive: bool) -> dict[str, Any]:
    """What a page shows of a session."""
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
    with os.scandir(runtime_dir()) as entries:
        found = [(entry.name, entry.stat().st_mtime_ns) for entry in entries if entry.name.endswith(".json")]
    return sorted(found)
