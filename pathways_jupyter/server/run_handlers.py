"""The routes about runs on many hosts: the runs of this user on this machine, their logs, and their end.

A page names a run and a host of it; where the hosts are and how to log in to them comes from the run's own record.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.multihost import output, records, targets
from pathways_jupyter.server import runwatch, scope
from pathways_jupyter.server.handlers import Handler, StreamHandler, route

LOG_LINES = 5000


class RunsHandler(Handler):
    """The runs."""

    @route
    async def get(self) -> Any:
        """Return the newest runs with the last known states of their hosts; asks no host."""
        self.query()
        return {"runs": await asyncio.to_thread(runwatch.newest), "at": time.time()}


class RunHandler(Handler):
    """The actions on a run; the page asks before it ends one."""

    @route
    async def post(self, run: str, action: str) -> Any:
        """End a run, or ask its hosts for states and output; return it as it is then."""
        self.query()
        self.body()
        # With asyncssh, which takes a moment to import.
        from pathways_jupyter.multihost import run_actions

        record = await asyncio.to_thread(records.read, run)
        if action == "stop":
            await run_actions.stop(record)
        else:
            await run_actions.refresh(record)
        return {"run": await asyncio.to_thread(lambda: runwatch.row(records.read(run)))}


class RunLogHandler(StreamHandler):
    """The output of one host of a run, as far as it is on this machine."""

    @route
    async def get(self, run: str) -> Any:
        """Stream its last lines as text; a followed one goes on until the run has ended."""
        given = self.query("host", "tail", "follow")
        record = await asyncio.to_thread(records.read, run)
        if not given.get("host"):
            raise ConfigError("The host is missing.", hint="Add ?host=SLICE-WORKER.")
        target = targets.choose(record.targets, given["host"])
        tail = _lines(given.get("tail") or str(LOG_LINES))
        follow = scope.flag("follow", given.get("follow") or "false")
        await self.stream(output.lines(record.log(target), tail, lambda: follow and records.goes_on(run)))


def _lines(wanted: str) -> int:
    if not wanted.isascii() or not wanted.isdecimal() or not 1 <= int(wanted[:9]) <= LOG_LINES:
        raise ConfigError(f"tail must be a number from 1 to {LOG_LINES}.", hint="Leave it out.")
    return int(wanted)
