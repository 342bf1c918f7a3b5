"""Leases: detect proxies whose session has died, and delete them.

The supervisor renews its session's Lease. When a whole machine dies, the Lease expires, and the next sweep (by a
connect, the server extension, the operator or `pathways-jupyter clean`) deletes the proxy Job. Several processes may
sweep at the same time. The Lease is deleted first, and only if it has not changed since it was read, so a renewal at
the last moment saves the Job.

A proxy with a relay holds its arrays for longer than its Lease. Between the two it is *reclaimable*: a sweep leaves it
alone, unless the caller needs its slices.

All times are the API server's, because the clocks of laptops differ by more than a lease, and are set back.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pathways_jupyter.base.errors import ApiError, ClusterError
from pathways_jupyter.base.text import stamp
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES, PODS, Object, Resource
from pathways_jupyter.service import names, proxy_job, untrusted
from pathways_jupyter.service.model import Reclaimable
from pathways_jupyter.service.names import label_value

DEFAULT_SECONDS = 60.0
_OPERATOR_HINT = "Where an operator runs, it deletes the pod; at the latest the pod ends at its own deadline."
EVERY = 1_000_000
"""For :func:`sweep`: reclaim all that are reclaimable."""
RENEWALS_PER_LEASE = 4
"""More than one, so that a lease survives a few failed renewals."""
_CLOCKS_DIFFER_SECONDS = 5.0
"""Two clients' ideas of the API server's time differ by less."""


@dataclass(frozen=True)
class Swept:
    """A proxy that was deleted, or (in a dry run) would be.

    Attributes:
      reason: Why it counts as abandoned.
      error: Why it could not be deleted, and what to do; empty when it could.
      silent: Seconds since its session was last seen.
      kept: Whether it is (or was) reclaimable, and not abandoned for good.
      kind: ``Job``, or ``Pod`` for a proxy whose Job was deleted without its pod; `job` is the pod's name then.
    """

    job: str
    namespace: str
    session: str
    user: str
    notebook: str
    reason: str
    error: str = ""
    uid: str = field(default="", compare=False)
    silent: float = field(default=0.0, compare=False)
    kept: bool = False
    kind: str = JOBS.kind


async def create(
    client: Client, job: Object, *, seconds: float = DEFAULT_SECONDS, holder: str = "", keep: float = 0.0
) -> Object:
    """Create the Lease of a proxy Job, which owns it, so that they are deleted together.

    Args:
      job: The Job as the API server created it.
      seconds: How long the Job stays without a renewal.
      holder: The process that renews it, for people to read.
      keep: How long the Job stays without a renewal while its slices are not needed, where that is longer.

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
    if keep:
        body["metadata"]["annotations"] = {names.KEEP_ANNOTATION: f"{keep:.0f}"}
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
    found = lease["metadata"].get("ownerReferences") or ()
    return tuple(str(each.get("uid")) for each in found if each.get("name") == lease["metadata"].get("name"))


async def fetch_reclaimable(client: Client, namespace: str) -> dict[str, Reclaimable]:
    """Get the reclaimable proxies, by the uids of their Jobs; without the permission to list Leases, none is known.

    Args:
      namespace: Empty for all.

    Raises:
      ClusterError: The server could not be reached.
    """
    return reclaimable(await _list_if_allowed(client, LEASES, namespace, names.SESSIONS), client.now())


def is_stale(lease: Object, now: float) -> bool:
    """Return whether `lease` has expired."""
    return now > end(lease, now)


async def sweep(
    client: Client,
    namespace: str,
    *,
    dry_run: bool = False,
    user: str = "",
    reclaim: int = 0,
    service: str = "",
) -> tuple[Swept, ...]:
    """Delete the proxy Jobs of sessions that have died, and the pods of proxies whose Jobs were deleted without them.

    Only those with this package's labels are considered. What cannot be deleted is reported in :attr:`Swept.error`, and
    does not stop the others.

    Args:
      namespace: Empty for all namespaces.
      dry_run: Only report what would be deleted.
      user: Only Jobs of this user (the label's value).
      reclaim: Delete up to so many reclaimable ones too, those first that have been silent for longest.
      service: Reclaim only those of this service.

    Raises:
      ApiError: Listing Jobs or Leases is forbidden.
      ClusterError: The server could not be reached.
    """
    selector = f"{names.SESSIONS},{names.USER_LABEL}={user}" if user else names.SESSIONS
    service = label_value(service)
    # Jobs first: then a listed Job without a listed Lease has none, or is too young to be considered abandoned.
    jobs, pods = await asyncio.gather(
        objects.list_(client, JOBS, namespace=namespace, labels=selector),
        _list_if_allowed(client, PODS, namespace, selector),
    )
    orphans = [orphan for each in pods if (orphan := proxy_job.of_orphan(each)) is not None]
    if not jobs.items and not orphans:
        return ()
    leases = await objects.list_(client, LEASES, namespace=namespace, labels=selector)
    by_place = {place(lease): lease for lease in leases.items}
    abandoned, kept = list[tuple[Swept, Object | None]](), list[tuple[Swept, Object | None]]()
    for job in (*jobs.items, *orphans):
        judged = judge(job, by_place.get(place(job)), client.now())
        if judged is not None and not judged[0].kept:
            abandoned.append(judged)
        elif judged is not None and service in {"", untrusted.label(job, names.SERVICE_LABEL)}:
            kept.append(judged)
    kept.sort(key=lambda each: each[0].silent, reverse=True)
    abandoned += kept[:reclaim]
    if dry_run:
        return tuple(found for found, _ in abandoned)
    done = await asyncio.gather(*(_clear(client, *each) for each in abandoned))
    return tuple(each for each in done if each is not None)


async def _list_if_allowed(client: Client, resource: Resource, namespace: str, labels: str) -> tuple[Object, ...]:
    """List objects; without the permission, none is known."""
    try:
        return (await objects.list_(client, resource, namespace=namespace, labels=labels)).items
    except ApiError as error:
        if error.status != 403:
            raise
        return ()


def place(item: Object) -> tuple[str, str]:
    """Return the namespace and the name of a Lease, or of that of a proxy; see :func:`.proxy_job.of_orphan`."""
    metadata = item["metadata"]
    return str(metadata.get("namespace") or ""), str(item.get("orphan_of") or metadata["name"])


def judge(job: Object, lease: Object | None, now: float) -> tuple[Swept, Object | None] | None:
    """Return why `job` is considered abandoned, and the Lease to delete with it; None when it is not.

    Args:
      job: A proxy's, or what :func:`.proxy_job.of_orphan` makes of a pod.
      lease: That of its :func:`place`, if there is one.
      now: The API server's time, in seconds since the epoch.
    """
    metadata: Mapping[str, Any] = job["metadata"]
    if metadata.get("deletionTimestamp"):
        return None
    is_orphan, kept, age = "orphan_of" in job, False, now - objects.created(job)
    uid = untrusted.label(job, names.JOB_UID_LABEL) if is_orphan else str(metadata.get("uid"))
    # A Lease of another owner belongs to another Job of the same name. An orphan's loses its owner too, or has already.
    if lease is not None and (uid in owners(lease) or (is_orphan and not owners(lease))):
        if not is_stale(lease, now):
            return None
        since = renewed(lease, now)
        silent, left = now - since, kept_until(lease, now) - now
        kept = left > 0
        if kept:
            reason = f"reclaimable: silent for {silent:.0f} s, and kept for {left:.0f} s more unless slices are needed"
        else:
            lost = "its Job was deleted without it, and " if is_orphan else ""
            reason = f"{lost}its lease of {end(lease, now) - since:.0f} s was not renewed"
    elif is_orphan:
        # Its Lease is that of a new Job, or was removed by its session, which may not delete pods.
        silent, reason, lease = age, "its Job was deleted without it", None
    elif age > DEFAULT_SECONDS:
        silent, reason = age, "it never got a lease"
    else:
        return None
    whose = untrusted.SessionLabels.of(job)
    found = Swept(
        job=str(metadata["name"]),
        namespace=str(metadata.get("namespace") or ""),
        session=whose.session,
        user=whose.user,
        notebook=whose.notebook,
        reason=reason,
        uid=str(metadata.get("uid") or ""),
        silent=silent,
        kept=kept,
        kind=PODS.kind if is_orphan else JOBS.kind,
    )
    return found, lease


async def _clear(client: Client, found: Swept, lease: Object | None) -> Swept | None:
    """Delete a Job; None when another sweep has deleted it, or when its session is alive after all."""
    namespace, resource = found.namespace, PODS if found.kind == PODS.kind else JOBS
    try:
        if lease is not None:
            about = lease["metadata"]
            uid, version = about["uid"], about["resourceVersion"]
            await objects.delete(client, LEASES, about["name"], namespace=namespace, uid=uid, resource_version=version)
        was_there = await objects.delete(client, resource, found.job, namespace=namespace, uid=found.uid)
    except ApiError as error:
        # 409: the Lease was renewed after all, or the name belongs to a new Job.
        if error.status == 409:
            return None
        hint = _OPERATOR_HINT if resource is PODS and error.status == 403 else error.hint
        return replace(found, error=f"{error} {hint}")
    except ClusterError as error:
        return replace(found, error=f"{error} {error.hint}")
    return found if was_there else None
