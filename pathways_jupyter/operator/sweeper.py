"""The sweeper deletes the proxies of dead sessions as soon as their Leases run out.

Every connect sweeps too, but in a cluster where no user connects any more an abandoned proxy would hold its slices
until its deadline. The sweeper follows the Leases, looks each second at those that it knows, and lists what is to be
deleted when one has run out: a watch may be late, and all that it knows would seem to have. A proxy that never got a
Lease is found by a sweep now and then. Several may sweep at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ClusterError, PathwaysError
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.kube.objects import LEASES, Object
from pathways_jupyter.kube.watch import Change, ChangeType
from pathways_jupyter.service import abandoned, leases, names

INTERVAL_SECONDS = 300.0
_PAUSE_SECONDS = 1.0


class Sweeper:
    """Sweeps one namespace, or all of them.

    Args:
      namespace: Empty for all.
      interval: Seconds until a sweep for which no Lease has run out since the last one.
      say: Called with each action, in words.
    """

    def __init__(
        self,
        informer: Informer,
        *,
        namespace: str = "",
        interval: float = INTERVAL_SECONDS,
        say: Callable[[str], None],
    ) -> None:
        self._informer = informer
        self._namespace = namespace
        self._interval = interval
        self._say = say
        self._leases: dict[tuple[str, str], Object] = {}
        self._is_synced = False
        # The Leases that had run out at the last sweep, and when that was.
        self._swept: set[tuple[str, str]] = set()
        self._swept_at = -math.inf
        # Why it cannot sweep; empty while it can.
        self._trouble = ""

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep until `stop` is set."""
        following = self._informer.follow(LEASES, self._take, namespace=self._namespace, labels=names.SESSIONS)
        for done in await tasks.first_done(self._sweep_until(stop), following):
            if done is not None:
                await done

    async def _sweep_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if self._is_synced:
                await self._sweep()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _PAUSE_SECONDS)

    async def _sweep(self) -> None:
        now = self._informer.client.now()
        ended = {key for key, each in self._leases.items() if leases.kept_until(each, now) < now}
        self._swept &= ended
        if ended == self._swept and time.monotonic() < self._swept_at + self._interval:
            return
        self._swept, self._swept_at = ended, time.monotonic()
        try:
            swept = await abandoned.sweep(self._informer.client, self._namespace)
        except ClusterError as error:
            self._report(error)
            return
        if self._trouble:
            self._say("the API server answers again")
            self._trouble = ""
        for each in swept:
            self._say(str(each))

    def _take(self, change: Change) -> None:
        if change.type is ChangeType.SYNCED:
            # What it could not do before, it can now, perhaps.
            self._is_synced, self._swept_at = True, -math.inf
        elif change.error is not None:
            self._is_synced = False
            self._report(change.error)
        elif change.type is ChangeType.DELETED:
            self._leases.pop(leases.lease_key(change.object), None)
        else:
            self._leases[leases.lease_key(change.object)] = change.object

    def _report(self, error: PathwaysError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._say(self._trouble)
