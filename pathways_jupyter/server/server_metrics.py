"""Metrics of this machine's sessions and their services at the Jupyter server's own ``/metrics``.

Collecting must not block the server, so a task reads sessions and clusters while Prometheus scrapes, and a scrape
takes what is fresh. The first scrape starts the task; the next one has values. Without scrapes nothing is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.server import scope
from pathways_jupyter.service import metrics
from pathways_jupyter.service.clusterwatch import ClusterWatch
from pathways_jupyter.service.session_figures import SessionFigures
from pathways_jupyter.session import client, registry

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from pathways_jupyter.server.hub import Hub

READ_SECONDS = 5.0
FRESH_SECONDS = 15.0
"""Age of figures that are no longer shown."""
UNWATCHED_SECONDS = 300.0
"""The task ends this long after the last scrape."""
_PATIENCE_SECONDS = 2.0

logger = logging.getLogger(__name__)


class ServerMetrics:
    """A collector for Prometheus' registry; used on the server's event loop only.

    Args:
      hub: Its watches of clusters are shared.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._task: asyncio.Task[None] | None = None
        self._scraped = 0.0
        self._read_at = float("-inf")
        self._figures: list[SessionFigures] = []
        self._unreachable = 0
        self._watches: set[ClusterWatch] = set()

    def describe(self) -> list[Metric]:
        """Return nothing: otherwise registering would collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield what is known and fresh."""
        self._scraped = time.monotonic()
        if self._task is None or self._task.done():
            # RuntimeError: not on the server's event loop, so this is no scrape of the server.
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop()
                self._task = self._hub.spawn(self._read())
        if self._scraped - self._read_at < FRESH_SECONDS:
            yield from metrics.of_sessions(self._figures, unreachable=self._unreachable)
        live = [watch for watch in self._hub.watches if watch.is_live]
        yield from metrics.of_services((watch.cluster.name, each) for watch in live for each in watch.pictures)

    async def _read(self) -> None:
        try:
            while time.monotonic() - self._scraped < UNWATCHED_SECONDS:
                try:
                    await self._read_once()
                except Exception:
                    # E.g. the directory of records cannot be read; the figures grow old meanwhile.
                    logger.exception("reading the sessions for /metrics")
                await asyncio.sleep(READ_SECONDS)
        finally:
            self._watch(set())

    async def _read_once(self) -> None:
        records = [record for record in await asyncio.to_thread(registry.sessions) if record.is_here]
        present = await client.present(records, patience=_PATIENCE_SECONDS)
        found = [each for each in present if not each.supervisor]
        self._figures, self._unreachable = [each.figures() for each in found], len(present) - len(found)
        self._read_at = time.monotonic()
        watches = set()
        for each in {scope.of_record(record) for record in found}:
            try:
                watches.add(await self._hub.watch(each))
            except PathwaysError as error:
                logger.info("no metrics of a session's cluster: %s", error)
        self._watch(watches)

    def _watch(self, watches: set[ClusterWatch]) -> None:
        """Keep `watches` open, and no others."""
        for watch in self._watches - watches:
            watch.remove(self._listen)
        for watch in watches - self._watches:
            watch.add(self._listen)
        self._watches = watches

    def _listen(self, message: dict[str, Any]) -> None:
        """Ignore messages: a listener keeps the watch open."""
