"""Watch the runs on many hosts of this machine while a page is open.

The processes that follow runs write files; no host is asked here. The TypeScript types of the rows, which are JSON
values, are in labextension/src/models/wire.ts: change both together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from pathways_jupyter.multihost import records
from pathways_jupyter.multihost.records import RunRecord
from pathways_jupyter.service.feed import Message, PolledFeed, difference

_LISTED_RUNS = 50
_COMMAND_CHARACTERS = 1000


def row(record: RunRecord) -> dict[str, Any]:
    """Return what a page shows of a run.

    ``at`` is when the states of its hosts were true, in seconds since the epoch; 0 if nothing is known of them.
    """
    return {
        "id": record.id,
        "name": record.name,
        "command": record.command[:_COMMAND_CHARACTERS],
        "state": record.state,
        "code": record.code,
        "started": record.started,
        "ended": record.ended,
        "at": record.at,
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
            for each in record.states
        ],
    }


class RunWatch(PolledFeed):
    """Publishes runs and every change of them to listeners."""

    # A process that follows a run writes the states of its hosts as often.
    poll_seconds = 0.5

    def __init__(self) -> None:
        super().__init__()
        # None until the first look.
        self._rows: dict[str, dict[str, Any]] | None = None

    def _snapshot(self) -> Iterator[Message]:
        if self._rows is not None:
            yield _message(list(self._rows.values()), [], reset=True)

    def stop(self) -> list[asyncio.Task[None]]:
        """Stop watching, and forget all runs."""
        self._rows = None
        return super().stop()

    async def _fingerprint(self) -> object:
        followed = [each["id"] for each in (self._rows or {}).values() if each["state"] == "running"]
        return await asyncio.to_thread(records.fingerprint, followed)

    async def _read(self) -> None:
        # The newest of this machine; no host is asked.
        newest = await asyncio.to_thread(lambda: {each.id: row(each) for each in records.runs()[:_LISTED_RUNS]})
        before, self._rows = self._rows, newest
        put, drop = difference(before or {}, self._rows)
        if before is None or put or drop:
            self.publish(_message(put, drop, reset=before is None))


def _message(put: list[dict[str, Any]], drop: list[str], *, reset: bool) -> Message:
    return {"type": "multihost", "reset": reset, "put": put, "drop": drop}
