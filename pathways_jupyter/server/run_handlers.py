"""The routes about runs on many hosts: the runs of this user on this machine, their logs, and their end.

A page names a run and a host of it; where the hosts are and how to log in to them comes from the run's own record.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pathways_jupyter.errors import ConfigError
from pathways_jupyter.multihost import hoststates, output, records, targets
from pathways_jupyter.multihost.records import Record
from pathways_jupyter.server.handlers import Handler, route

LISTED_RUNS = 50
LOG_LINES = 5000
_COMMAND_CHARACTERS = 1000


class RunsHandler(Handler):
    """The runs."""

    @route
    async def get(self) -> Any:
        """Return the newest runs with the last known states of their hosts; asks no host."""
        self.query()
        return {"runs": await asyncio.to_thread(_newest), "at": time.time()}


class RunHandler(Handler):
    """The actions on a run."""

    @route
    async def post(self, run: str, action: str) -> Any:
        """End a run, or ask its hosts for states and output; return it as it is then."""
        self.query()
        self.body()
        # With asyncssh, which takes a moment to import.
        from pathways_jupyter.multihost import actions

        record = await asyncio.to_thread(records.read, run)
        if action == "stop":
            await actions.stop(record)
        else:
            await actions.refresh(record)
        return {"run": await asyncio.to_thread(lambda: _described(records.read(run)))}


class RunLogHandler(Handler):
    """The output of one host of a run, as far as it is on this machine."""

    @route
    async def get(self, run: str) -> Any:
        """Send its last lines as text."""
        given = self.query("host", "tail")
        record = await asyncio.to_thread(records.read, run)
        if not given.get("host"):
            raise ConfigError("The host is missing.", hint="Add ?host=SLICE-WORKER.")
        target = targets.choose(record.targets, given["host"])
        lines = await asyncio.to_thread(output.tail, record.log(target), _lines(given.get("tail") or str(LOG_LINES)))
        text = "".join(f"{line}\n" for line in lines)
        await self.finish(text, set_content_type="text/plain; charset=utf-8")


def _newest() -> list[dict[str, Any]]:
    return [_described(record) for record in records.runs()[:LISTED_RUNS]]


def _described(record: Record) -> dict[str, Any]:
    """Return what a page shows of a run.

    ``at`` is when the states of its hosts were true, in seconds since the epoch; 0 if nothing is known of them.
    """
    states = hoststates.read(record)
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


def _lines(wanted: str) -> int:
    if not wanted.isascii() or not wanted.isdecimal() or not 1 <= int(wanted[:9]) <= LOG_LINES:
        raise ConfigError(f"tail must be a number from 1 to {LOG_LINES}.", hint="Leave it out.")
    return int(wanted)
