"""Record chip-hours: what each renewal of a session's Lease says it has held since the one before.

Time in which no operator runs is not recorded, nor the last minute of one that ends. How many chips a session holds is
its own word; whose they are is said by labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import Object
from pathways_jupyter.service import leases, names, untrusted, usage_records
from pathways_jupyter.service.session_figures import SessionFigures
from pathways_jupyter.service.usage_records import Pending, Share

WRITE_SECONDS = 60.0


def _share(lease: Object) -> Share:
    labels = (names.USER_LABEL, names.SERVICE_LABEL, names.CHIPS_QUEUE_LABEL)
    return Share(str(lease["metadata"].get("namespace") or ""), *(untrusted.label(lease, each) for each in labels))


@dataclass
class _Renewal:
    """When a session has renewed its Lease, in seconds since the epoch, and how many chips it held then."""

    at: float
    chips: int


class UsageRecorder:
    """Counts what all Leases say, and records it while :meth:`run` runs.

    Args:
      namespace: Where the records are.
      say: Called with the reason when they cannot be written.
    """

    def __init__(self, client: Client, namespace: str, *, say: Callable[[str], None]) -> None:
        self._client = client
        self._namespace = namespace
        self._say = say
        self._last: dict[str, _Renewal] = {}
        self._pending: Pending | None = None
        self._said = ""

    def take(self, lease: Object) -> None:
        """Count the time since the previous renewal; the Lease of an ended session as it was last."""
        now, figures = self._client.now(), SessionFigures.read(lease)
        if figures is None:
            return
        uid = str(lease["metadata"].get("uid"))
        before = self._last.get(uid)
        # Never back: the time in between would be counted again.
        at = max(min(leases.renewed(lease, now), now), before.at if before is not None else 0.0)
        self._last[uid] = _Renewal(at, figures.chips if figures.holds else 0)
        if before is not None and self._pending is not None:
            self._pending.add(_share(lease), before.chips, before.at, at)

    def forget(self, lease: Object) -> None:
        """Count a session that has ended, until now."""
        before = self._last.pop(str(lease["metadata"].get("uid")), None)
        if before is not None and self._pending is not None:
            # One that was silent before is known to have had its chips until its Lease ran out.
            now = self._client.now()
            self._pending.add(_share(lease), before.chips, before.at, min(now, leases.end(lease, now)))

    async def run(self) -> None:
        """Record until cancelled; only one operator may do so at a time."""
        self._pending, cleaned = Pending(), ""
        try:
            while True:
                await asyncio.sleep(WRITE_SECONDS)
                problem = await self._write(self._pending)
                if (today := usage_records.day(self._client.now())) != cleaned:
                    try:
                        await usage_records.delete_old(self._client, self._namespace)
                        cleaned = today
                    except PathwaysError as error:
                        problem = problem or f"old records of usage are not deleted: {error}"
                self._report(problem)
        finally:
            self._pending = None

    async def _write(self, pending: Pending) -> str:
        """Record what is pending; return why something could not be."""
        problem = ""
        for day in list(pending.days):
            added = pending.days.pop(day)
            try:
                await usage_records.write(self._client, self._namespace, day, added)
            except PathwaysError as error:
                # Counted with the next ones.
                pending.merge(day, added)
                problem = f"usage is not recorded: {error}"
        return problem

    def _report(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._say(text or "usage is recorded again")
