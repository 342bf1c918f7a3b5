"""Leases: whether the session of a proxy lives.

The supervisor renews its session's Lease. When a whole machine dies, the Lease expires, and the next sweep deletes the
proxy (:mod:`.abandoned`). A proxy with a relay holds its arrays for longer than its Lease. Between the two it is
*reclaimable*: a sweep leaves it alone, unless the caller needs its slices.

All times are the API server's, because the clocks of laptops differ by more than a lease, and are set back.
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
from pathways_jupyter.base.text import stamp
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import LEASES, Object
from pathways_jupyter.service import names, untrusted
from pathways_jupyter.service.model import Reclaimable

DEFAULT_SECONDS = 60.0
RENEWALS_PER_LEASE = 4
"""More than one, so that a lease survives a few failed renewals."""
_CLOCKS_DIFFER_SECONDS = 5.0
"""Two clients' ideas of the API server's time differ by less."""
_AGAIN_SECONDS, _LONGEST_AGAIN_SECONDS = 5.0, 45.0
"""Pauses between two looks while a session is silent, or while a proxy has no Lease yet. The longest is as long as
those while all sessions renew their Leases: one that stays silent must not cost more."""
_SHORTEST_PAUSE_SECONDS, _APART_SECONDS = 0.5, 2.0

logger = logging.getLogger(__name__)


async def create(
    client: Client,
    job: Object,
    *,
    seconds: float = DEFAULT_SECONDS,
    holder: str = "",
    keep: float = 0.0,
    reclaimed: Iterable[str] = (),
) -> Object:
    """Create the Lease of a proxy Job, which owns it, so that they are deleted together.

    Args:
      job: The Job as the API server created it.
      seconds: How long the Job stays without a renewal.
      holder: The process that renews it, for people to read.
      keep: How long the Job stays without a renewal while its slices are not needed, where that is longer.
      reclaimed: As for :func:`note_reclaimed`.

    Raises:
      ApiError: It exists already, or creating it is forbidden.
      ClusterError: The server could not be reached.
    """
    # The API server's time: the clock of this machine may be wrong by more than the Lease lasts.
    now = stamp(client.now(), micro=True)
    metadata = job["metadata"]
    body: Object = {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": dict(metadata.get("labels") or {}),
            "ownerReferences": [objects.owner(job)],
        },
        "spec": {
            "holderIdentity": holder or metadata["name"],
            "leaseDurationSeconds": max(1, math.ceil(seconds)),
            "acquireTime": now,
            "renewTime": now,
        },
    }
    annotations = {
        names.KEEP_ANNOTATION: f"{keep:.0f}" if keep else "",
        names.RECLAIMED_ANNOTATION: ",".join(reclaimed),
        names.NOTEBOOK_ANNOTATION: str((metadata.get("annotations") or {}).get(names.NOTEBOOK_ANNOTATION) or ""),
    }
    body["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value}
    return await objects.create(client, LEASES, body)


async def renew(client: Client, name: str, *, namespace: str, figures: str = "") -> bool:
    """Renew a Lease; False when it is gone, because a sweep has considered the session dead.

    Args:
      figures: The session's figures, which the Lease carries until the next renewal.

    Raises:
      ApiError: Renewing is forbidden.
      ClusterError: The server could not be reached.
    """
    try:
        change: Object = {"spec": {"renewTime": stamp(client.now(), micro=True)}}
        if figures:
            change["metadata"] = {"annotations": {names.FIGURES_ANNOTATION: figures}}
        await objects.patch(client, LEASES, name, change, namespace=namespace)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


async def note_reclaimed(client: Client, name: str, *, namespace: str, sessions: Iterable[str]) -> None:
    """Note on a session's Lease, which it may change, which silent sessions it took slices from.

    One that comes back finds there who has its slices.

    Raises:
      ApiError: There is no such Lease, or changing it is forbidden.
      ClusterError: The server could not be reached.
    """
    change = {"metadata": {"annotations": {names.RECLAIMED_ANNOTATION: ",".join(sessions)}}}
    await objects.patch(client, LEASES, name, change, namespace=namespace)


def renewed(lease: Object, now: float) -> float:
    """Return when `lease` was renewed last, in seconds since the epoch; 0 if it does not say.

    The clock of its author may be wrong: one that was set back writes a `renewTime` in the past. When it wrote that,
    the API server has noted by its own clock. A time in the future counts for nothing, or anyone who may write a
    Lease could hold it for ever.

    Args:
      now: The API server's time, in seconds since the epoch.
    """

    def past(*times: object) -> list[float]:
        return [at for each in times if 0 < (at := untrusted.time(each)) <= now + _CLOCKS_DIFFER_SECONDS]

    spec, metadata = lease.get("spec") or {}, lease["metadata"]
    stated = past(spec.get("renewTime"), spec.get("acquireTime"), metadata.get("creationTimestamp"))
    noted = past(*(each.get("time") for each in metadata.get("managedFields") or ()))
    return max([*stated[:1], *noted], default=0.0)


def end(lease: Object, now: float) -> float:
    """Return when `lease` expires unless it is renewed, in seconds since the epoch; see :func:`renewed` for `now`."""
    written = (lease.get("spec") or {}).get("leaseDurationSeconds")
    seconds = untrusted.number(written, untrusted.LONGEST_SECONDS) or DEFAULT_SECONDS
    since = renewed(lease, now)
    return since + seconds if since else 0.0


def kept_until(lease: Object, now: float) -> float:
    """Return until when its Job is kept while its slices are not needed, in seconds since the epoch."""
    return max(end(lease, now), renewed(lease, now) + untrusted.keep_seconds(lease))


def reclaimable(leases: Iterable[Object], now: float) -> dict[str, Reclaimable]:
    """Return the reclaimable proxies by the uids of their Jobs.

    Also after the time for which they asked: until someone removes them, they are there and can be taken.

    Args:
      leases: Those of a namespace; others than proxies' are ignored.
      now: The API server's time, in seconds since the epoch.
    """
    return {
        uid: Reclaimable(renewed(lease, now), kept_until(lease, now))
        for lease in leases
        if untrusted.keep_seconds(lease) and is_stale(lease, now)
        for uid in owners(lease)
    }


def owners(lease: Object) -> tuple[str, ...]:
    """Return the uids of the proxies that `lease` is of: of its name, because its author may name any owner."""
    references = lease["metadata"].get("ownerReferences") or ()
    return tuple(str(each.get("uid")) for each in references if each.get("name") == lease["metadata"].get("name"))


async def fetch_reclaimable(client: Client, namespace: str) -> dict[str, Reclaimable]:
    """Get the reclaimable proxies, by the uids of their Jobs; without the permission to list Leases, none is known.

    Args:
      namespace: Empty for all.

    Raises:
      ClusterError: The server could not be reached.
    """
    listed = await objects.list_if_allowed(client, LEASES, namespace=namespace, labels=names.SESSIONS)
    return reclaimable(listed, client.now())


def is_stale(lease: Object, now: float) -> bool:
    """Return whether `lease` has expired."""
    return now > end(lease, now)


def lease_key(item: Object) -> tuple[str, str]:
    """Return the namespace and the name of a Lease, or of that of a proxy; see :func:`.proxy_job.of_orphan`."""
    metadata = item["metadata"]
    return str(metadata.get("namespace") or ""), str(item.get("orphan_of") or metadata["name"])


class LeaseWatch:
    """The reclaimable proxies of one namespace, known without a watch on their Leases.

    A Lease is renewed several times before it runs out, and only its end matters here. So the Leases are listed when
    the first of them would have ended, and now and then while a session is silent, to notice its return; while there is
    no proxy with a relay, never.

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
        self._again = Backoff(_AGAIN_SECONDS, _LONGEST_AGAIN_SECONDS)

    def follow(self, jobs: Iterable[Object]) -> None:
        """Follow the proxies with a relay among `jobs` from now on, and no others."""
        uids = frozenset(str(job["metadata"].get("uid")) for job in jobs if untrusted.keep_seconds(job))
        if uids != self._jobs:
            self._jobs = uids
            self._jobs_changed.set()

    async def run(self, client: Client, namespace: str) -> None:
        """Keep :attr:`reclaimable` up to date; without the permission to list Leases it stays as it is."""
        while True:
            self._jobs_changed.clear()
            pause = _AGAIN_SECONDS
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
        listed = (await objects.list_(client, LEASES, namespace=namespace, labels=names.SESSIONS)).items
        now, ends = client.now(), dict[str, float]()
        for lease in listed:
            ends |= dict.fromkeys(owners(lease), end(lease, now))
        silent = {uid: each for uid, each in reclaimable(listed, now).items() if uid in self._jobs}
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
