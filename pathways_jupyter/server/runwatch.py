"""Watch the runs on many hosts of this machine while a page is open.

The processes that follow runs write files; no host is asked here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pathways_jupyter.multihost import records
from pathways_jupyter.server import run_rows
from pathways_jupyter.service.listeners import Listener, Listeners

LOOK_SECONDS = 0.5
"""Polling interval of the files; a process that follows a run writes the states of its hosts as often."""
RETRY_SECONDS = 5.0
"""Delay before the next look after an error."""

logger = logging.getLogger(__name__)


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
                    self._publish({each["id"]: each for each in await asyncio.to_thread(run_rows.newest)})
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
