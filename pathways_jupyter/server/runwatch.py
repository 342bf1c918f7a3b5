"""Watch the runs on many hosts of this machine while a page is open.

The processes that follow runs write files; no host is asked here. The TypeScript types of the rows, which are JSON
values, are in labextension/src/models/wire.ts: change both together.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pathways_jupyter.multihost import records
from pathways_jupyter.multihost.records import Record
from pathways_jupyter.service.listeners import Listener, Listeners

LOOK_SECONDS = 0.5
"""Polling interval of the files; a process that follows a run writes the states of its hosts as often."""
RETRY_SECONDS = 5.0
"""Delay before the next look after an error."""

LISTED_RUNS = 50
_COMMAND_CHARACTERS = 1000

logger = logging.getLogger(__name__)


def newest() -> list[dict[str, Any]]:
    """Return the newest runs of this machine with the last known states of their hosts; asks no host."""
    return [row(record) for record in records.runs()[:LISTED_RUNS]]


def row(record: Record) -> dict[str, Any]:
    """Return what a page shows of a run.

    ``at`` is when the states of its hosts were true, in seconds since the epoch; 0 if nothing is known of them.
    """
    states = records.read_states(record)
    return {
        "id": record.id,
        "name": record.name,
        "command": record.command[:_COMMAND_CHARACTERS],
        "state": record.state,
        "code": record.code,
        "started": record.started,
        "ended": record.ended,
        "at": states.at,
        "hosts": [
            {
                "label": each.target.label,
                "name": each.target.name,
                "phase": str(each.phase),
                "over": each.phase.over,
                "code": each.exit_code,
                "last_line": each.last_line,
                "began": each.began,
                "ended": each.ended,
                "sent": each.sent,
                "total": each.total,
                "message": each.message,
                "hint": each.hint,
            }
            for each in states.hosts
        ],
    }


class RunWatch:
    """Publishes runs and every change of them to listeners; used on the server's event loop only."""

    def __init__(self) -> None:
        self._listeners = Listeners()
        self._task: asyncio.Task[None] | None = None
        # None until the first look.
        self._rows: dict[str, dict[str, Any]] | None = None

    def add(self, listener: Listener) -> None:
        """Send `listener` the present runs as soon as they are known, then every change. One that raises is removed."""
        self._listeners.add(listener)
        if self._rows is not None:
            self._listeners.send(listener, _message(list(self._rows.values()), [], reset=True))
        if self._task is None:
            self._task = asyncio.create_task(self._watch())

    def remove(self, listener: Listener) -> None:
        """Remove `listener`; the watch stops with the last one."""
        self._listeners.remove(listener)
        if not self._listeners:
            self.close()

    def close(self) -> None:
        """Stop watching."""
        self._listeners.clear()
        if self._task is not None:
            self._task.cancel()
        self._task, self._rows = None, None

    async def _watch(self) -> None:
        seen: object = None
        while True:
            try:
                followed = [each["id"] for each in (self._rows or {}).values() if each["state"] == "running"]
                # Taken before the files are read, so that a change in between causes another look.
                now = await asyncio.to_thread(records.fingerprint, followed)
                if now != seen:
                    self._publish({each["id"]: each for each in await asyncio.to_thread(newest)})
                    seen = now
            except Exception:
                # E.g. the directory cannot be read at the moment; the next look may succeed.
                logger.exception("looking at the runs of this machine")
                seen = None
                await asyncio.sleep(RETRY_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)

    def _publish(self, rows: dict[str, dict[str, Any]]) -> None:
        before, self._rows = self._rows, rows
        put = [row for run, row in rows.items() if (before or {}).get(run) != row]
        drop = [run for run in before or {} if run not in rows]
        if before is None or put or drop:
            self._listeners.publish(_message(put, drop, reset=before is None))


def _message(put: list[dict[str, Any]], drop: list[str], *, reset: bool) -> dict[str, Any]:
    return {"type": "multihost", "reset": reset, "put": put, "drop": drop}
