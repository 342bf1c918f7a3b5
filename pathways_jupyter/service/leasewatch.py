"""Know which proxies of a namespace are reclaimable, without a watch on their Leases.

A Lease is renewed several times before it runs out, and only its end matters here. So the Leases are listed when the
first of them would have ended, and now and then while a session is silent, to notice its return; while there is no
proxy with a relay, never.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Callable, Iterable, Mapping

from pathways_jupyter.base.errors import ApiError, ClusterError
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import LEASES, Object
from pathways_jupyter.service import leases, names, untrusted
from pathways_jupyter.service.model import Reclaimable

AGAIN_SECONDS, LONGEST_AGAIN_SECONDS = 5.0, 45.0
"""Pauses between two looks while a session is silent, or while a proxy has no Lease yet. The longest is as long as
those while all sessions renew their Leases: one that stays silent must not cost more."""
_SHORTEST_PAUSE_SECONDS, _APART_SECONDS = 0.5, 2.0

logger = logging.getLogger(__name__)


class LeaseWatch:
    """The reclaimable proxies of one namespace.

    Args:
      changed: Called when :attr:`reclaimable` has changed.

    Attributes:
      reclaimable: By the uid of their Job.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.reclaimable: Mapping[str, Reclaimable] = {}
        self._changed = changed
        self._jobs: frozenset[str] = frozenset()
        self._jobs_changed = asyncio.Event()
        self._again = Backoff(AGAIN_SECONDS, LONGEST_AGAIN_SECONDS)

    def follow(self, jobs: Iterable[Object]) -> None:
        """Follow the proxies with a relay among `jobs` from now on, and no others."""
        found = frozenset(str(job["metadata"].get("uid")) for job in jobs if untrusted.keep_seconds(job))
        if found != self._jobs:
            self._jobs = found
            self._jobs_changed.set()

    async def run(self, client: Client, namespace: str) -> None:
        """Keep :attr:`reclaimable` up to date; without the permission to list Leases it stays as it is."""
        while True:
            self._jobs_changed.clear()
            pause = AGAIN_SECONDS
            try:
                pause = await self._list(client, namespace) if self._jobs else math.inf
            except ApiError as error:
                logger.info("leases: %s", error)
                if error.status == 403:
                    return
            except ClusterError as error:
                # The watches of the same cluster report it.
                logger.info("leases: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause if math.isfinite(pause) else None):
                    await self._jobs_changed.wait()

    async def _list(self, client: Client, namespace: str) -> float:
        """List the Leases; return the time until the next look, in seconds."""
        found = (await objects.list_(client, LEASES, namespace=namespace, labels=names.SESSIONS)).items
        now, ends = client.now(), dict[str, float]()
        for lease in found:
            ends |= dict.fromkeys(leases.owners(lease), leases.end(lease, now))
        silent = {uid: each for uid, each in leases.reclaimable(found, now).items() if uid in self._jobs}
        until = [ends[uid] - now for uid in self._jobs if uid in ends and uid not in silent]
        if silent != self.reclaimable or len(until) == len(self._jobs):
            self._again.reset()
        if silent != self.reclaimable:
            self.reclaimable = silent
            self._changed()
        if len(until) < len(self._jobs):
            until.append(self._again.next_pause())
        # All who look at this namespace know the same ends: they must not all list at the same moment.
        return max(_SHORTEST_PAUSE_SECONDS, min(until)) + random.uniform(0, _APART_SECONDS)
