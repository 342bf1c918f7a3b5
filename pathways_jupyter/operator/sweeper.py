"""The sweeper deletes the proxies of dead sessions as soon as their leases expire.

Every connect sweeps too, but in a cluster where no user connects any more an abandoned proxy would hold its slices
until its deadline. The sweeper only lists, watches and deletes Jobs and Leases. It watches the Leases, so it knows
when the next one expires, and sends no requests in between. Several may sweep at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pathways_jupyter.errors import ClusterError
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import LEASES
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.service import leases, names

INTERVAL_SECONDS = 30.0
_RETRY_SECONDS = 5.0
_SHORTEST_PAUSE_SECONDS = 0.2


class Sweeper:
    """Sweeps one namespace, or all of them.

    Args:
      namespace: Empty for all.
      interval: Longest time between sweeps in seconds, for Jobs that never got a lease.
      say: Called with each action, in words.
    """

    def __init__(
        self, client: Client, *, namespace: str = "", interval: float = INTERVAL_SECONDS, say: Callable[[str], None]
    ) -> None:
        self._client = client
        self._say = say
        self._namespace = namespace
        self._interval = interval
        self._ends: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._trouble = ""

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep until `stop` is set."""
        following = asyncio.create_task(self._follow())
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                await self._sweep()
                await self._pause(stopping)
        finally:
            for task in (following, stopping):
                task.cancel()
            await asyncio.gather(following, stopping, return_exceptions=True)

    async def _sweep(self) -> None:
        try:
            swept = await leases.sweep(self._client, self._namespace)
        except ClusterError as error:
            self._report_trouble(error)
            return
        self._report_trouble(None)
        for each in swept:
            whose = f"session {each.session} of {each.user or 'unknown'}"
            if each.error:
                self._say(f"cannot delete Job {each.namespace}/{each.job} ({whose}): {each.error}")
            else:
                self._say(f"deleted Job {each.namespace}/{each.job} ({whose}): {each.reason}")

    async def _pause(self, stopping: asyncio.Task[bool]) -> None:
        """Wait until the next lease may have ended."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._interval
        while not stopping.done():
            now = self._client.now()
            # The earliest expiry on the API server's clock, as a time to sleep. Never zero, or a lease that is due and
            # could not be deleted would make this loop spin.
            due = min(self._ends.values(), default=float("inf")) - now
            left = min(deadline - loop.time(), max(due, _SHORTEST_PAUSE_SECONDS))
            if left <= 0:
                return
            self._changed.clear()
            changed = asyncio.create_task(self._changed.wait())
            done, _ = await asyncio.wait({changed, stopping}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if not done:
                # Timed out: a lease has expired, or the interval is over. Forget what has expired; if the sweep cannot
                # delete it, it waits for the next interval.
                self._ends = {key: end for key, end in self._ends.items() if end > self._client.now()}
                return

    async def _follow(self) -> None:
        labels = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY},{names.SESSION_LABEL}"
        while True:
            try:
                async for change in watch(self._client, LEASES, namespace=self._namespace, labels=labels):
                    self._take(change.type, change.object)
            except ClusterError as error:
                self._report_trouble(error)
            await asyncio.sleep(_RETRY_SECONDS)

    def _take(self, kind: ChangeType, lease: dict[str, object]) -> None:
        if kind in {ChangeType.SYNCED, ChangeType.LOST}:
            return
        metadata = lease["metadata"]
        assert isinstance(metadata, dict)
        key = f"{metadata.get('namespace')}/{metadata.get('name')}"
        if kind is ChangeType.DELETED:
            self._ends.pop(key, None)
        else:
            self._ends[key] = leases.kept_until(lease)
        self._changed.set()

    def _report_trouble(self, error: ClusterError | None) -> None:
        text = str(error) if error is not None else ""
        if text != self._trouble:
            self._trouble = text
            self._say(text or "the API server answers again")
