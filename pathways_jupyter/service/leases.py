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
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pathways_jupyter.errors import ApiError, ClusterError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES, PODS, Object
from pathways_jupyter.service import cluster_input, names, proxy_job
from pathways_jupyter.service.model import Reclaimable
from pathways_jupyter.service.names import label_value

DEFAULT_SECONDS = 60.0
_OPERATOR_HINT = "Where an operator runs, it deletes the pod; at the latest the pod ends at its own deadline."
EVERY = 1_000_000
"""For :func:`sweep`: reclaim all that are reclaimable."""
RENEWALS_PER_LEASE = 4
"""More than one, so that a lease survives a few failed renewals."""


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
    now = stamp(client.now())
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
        change: Object = {"spec": {"renewTime": stamp(client.now())}}
        if figures:
            change["metadata"] = {"annotations": {names.FIGURES_ANNOTATION: figures}}
        await objects.patch(client, LEASES, name, change, namespace=namespace)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


def end(lease: Object) -> float:
    """Return when `lease` expires unless it is renewed, in seconds since the epoch."""
    renewed = _renewed(lease)
    written = (lease.get("spec") or {}).get("leaseDurationSeconds")
    seconds = cluster_input.number(written, cluster_input.LONGEST_SECONDS) or DEFAULT_SECONDS
    return renewed + seconds if renewed else 0.0


def kept_until(lease: Object) -> float:
    """Return until when its Job is kept while its slices are not needed, in seconds since the epoch."""
    return max(end(lease), _renewed(lease) + cluster_input.keep_seconds(lease))


def may_be_kept(job: Object) -> bool:
    """Whether a proxy Job is kept beyond its Lease, because there is a relay beside the proxy."""
    return cluster_input.keep_seconds(job) > 0


def reclaimable(leases: Iterable[Object], now: float) -> dict[str, Reclaimable]:
    """Return the reclaimable proxies by the uids of their Jobs.

    Also after the time for which they asked: until someone removes them, they are there and can be taken.

    Args:
      leases: Those of a namespace; others than proxies' are ignored.
      now: The API server's time, in seconds since the epoch.
    """
    return {
        uid: Reclaimable(_renewed(lease), kept_until(lease))
        for lease in leases
        if cluster_input.keep_seconds(lease) and is_stale(lease, now)
        for uid in owners(lease)
    }


def owners(lease: Object) -> tuple[str, ...]:
    """Return the uids of the proxies that `lease` is of: of its name, because its author may name any owner."""
    found = lease["metadata"].get("ownerReferences") or ()
    return tuple(str(each.get("uid")) for each in found if each.get("name") == lease["metadata"].get("name"))


async def fetch_reclaimable(client: Client, namespace: str, jobs: Iterable[Object]) -> dict[str, Reclaimable]:
    """Get the reclaimable proxies among `jobs`, by their uids; sends no request while none of them has a relay.

    Without the permission to list Leases, none is known.

    Args:
      namespace: Empty for all.

    Raises:
      ClusterError: The server could not be reached.
    """
    if not any(map(may_be_kept, jobs)):
        return {}
    try:
        found = await objects.list_(client, LEASES, namespace=namespace, labels=_selector("", ""))
    except ApiError as error:
        if error.status != 403:
            raise
        return {}
    return reclaimable(found.items, client.now())


def is_stale(lease: Object, now: float) -> bool:
    """Whether `lease` has expired."""
    return now > end(lease)


async def sweep(
    client: Client,
    namespace: str,
    *,
    dry_run: bool = False,
    user: str = "",
    session: str = "",
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
      session: Only the Job of this session.
      reclaim: Delete up to so many reclaimable ones too, those first that have been silent for longest.
      service: Reclaim only those of this service.

    Raises:
      ApiError: Listing Jobs or Leases is forbidden.
      ClusterError: The server could not be reached.
    """
    selector = _selector(user, session)
    # Jobs first: then a listed Job without a listed Lease has none, or is too young to be considered abandoned.
    jobs, orphans = await asyncio.gather(
        objects.list_(client, JOBS, namespace=namespace, labels=selector), _orphans(client, namespace, selector)
    )
    if not jobs.items and not orphans:
        return ()
    leases = await objects.list_(client, LEASES, namespace=namespace, labels=selector)
    by_place = {place(lease): lease for lease in leases.items}
    found = [_judge(job, by_place.get(place(job)), client.now()) for job in (*jobs.items, *orphans)]
    abandoned = [each for each in found if each is not None and not each.kept]
    wanted = label_value(service)
    kept = [
        each
        for each in found
        if each is not None and each.kept and wanted in {"", cluster_input.label(each.job, names.SERVICE_LABEL)}
    ]
    abandoned += sorted(kept, key=lambda each: each.silent, reverse=True)[:reclaim]
    if dry_run:
        return tuple(each.swept() for each in abandoned)
    done = await asyncio.gather(*(_clear(client, each) for each in abandoned))
    return tuple(each for each in done if each is not None)


async def _orphans(client: Client, namespace: str, selector: str) -> list[Object]:
    """Return the pods of proxies that have lost their Jobs; without the permission to list pods, none is known."""
    try:
        listed = await objects.list_(client, PODS, namespace=namespace, labels=selector)
    except ApiError as error:
        if error.status != 403:
            raise
        return []
    return [found for each in listed.items if (found := proxy_job.of_orphan(each)) is not None]


def stamp(seconds: float) -> str:
    """Return seconds since the epoch as a Kubernetes MicroTime."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _selector(user: str, session: str) -> str:
    wanted = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.USER_LABEL: user, names.SESSION_LABEL: session}
    return ",".join([*(f"{key}={value}" for key, value in wanted.items() if value), names.SESSION_LABEL])


def place(item: Object) -> tuple[str, str]:
    """Return the namespace and the name of a Lease, or of that of a proxy; see :func:`.proxy_job.of_orphan`."""
    metadata = item["metadata"]
    return str(metadata.get("namespace") or ""), str(item.get("orphan_of") or metadata["name"])


@dataclass(frozen=True)
class _Abandoned:
    """A Job whose session is not seen any more.

    Attributes:
      silent: For how many seconds.
      kept: Whether it is reclaimable.
    """

    job: Object
    lease: Object | None
    reason: str
    silent: float
    kept: bool = False

    def swept(self, error: str = "") -> Swept:
        metadata, whose = self.job["metadata"], cluster_input.Whose.of(self.job)
        return Swept(
            job=str(metadata["name"]),
            namespace=str(metadata.get("namespace") or ""),
            session=whose.session,
            user=whose.user,
            notebook=whose.notebook,
            reason=self.reason,
            error=error,
            uid=str(metadata.get("uid") or ""),
            silent=self.silent,
            kept=self.kept,
            kind=PODS.kind if "orphan_of" in self.job else JOBS.kind,
        )


def _judge(job: Object, lease: Object | None, now: float) -> _Abandoned | None:
    """Return why `job` is considered abandoned; None when it is not."""
    metadata: Mapping[str, object] = job["metadata"]
    if metadata.get("deletionTimestamp"):
        return None
    is_orphan = "orphan_of" in job
    uid = cluster_input.label(job, names.JOB_UID_LABEL) if is_orphan else str(metadata.get("uid"))
    # A Lease of another owner belongs to another Job of the same name. An orphan's loses its owner too, or has already.
    if lease is not None and (uid in owners(lease) or (is_orphan and not owners(lease))):
        if not is_stale(lease, now):
            return None
        seconds, silent = end(lease) - _renewed(lease), now - _renewed(lease)
        left = kept_until(lease) - now
        if left > 0:
            reason = f"reclaimable: silent for {silent:.0f} s, and kept for {left:.0f} s more unless slices are needed"
            return _Abandoned(job, lease, reason, silent, kept=True)
        lost = "its Job was deleted without it, and " if is_orphan else ""
        return _Abandoned(job, lease, f"{lost}its lease of {seconds:.0f} s was not renewed", silent)
    if is_orphan:
        # Its Lease is that of a new Job, or was removed by its session, which may not delete pods.
        return _Abandoned(job, None, "its Job was deleted without it", now - objects.created(job))
    age = now - objects.created(job)
    return _Abandoned(job, lease, "it never got a lease", age) if age > DEFAULT_SECONDS else None


def _renewed(lease: Object) -> float:
    """Return when `lease` was renewed last, in seconds since the epoch.

    A client whose clock was set back writes a `renewTime` in the past. When it wrote that, the API server has noted by
    its own clock.
    """
    spec, metadata = lease.get("spec") or {}, lease["metadata"]
    renewed = (spec.get("renewTime"), spec.get("acquireTime"), metadata.get("creationTimestamp"))
    written = [cluster_input.time(each.get("time")) for each in metadata.get("managedFields") or ()]
    return max([next(filter(None, map(cluster_input.time, renewed)), 0.0), *written])


async def _clear(client: Client, abandoned: _Abandoned) -> Swept | None:
    """Delete a Job; None when another sweep has deleted it, or when its session is alive after all."""
    job, lease = abandoned.job, abandoned.lease
    name, namespace = str(job["metadata"]["name"]), str(job["metadata"]["namespace"])
    resource = PODS if "orphan_of" in job else JOBS
    try:
        if lease is not None:
            metadata = lease["metadata"]
            await objects.delete(
                client,
                LEASES,
                metadata["name"],
                namespace=namespace,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )
        gone = not await objects.delete(client, resource, name, namespace=namespace, uid=job["metadata"]["uid"])
    except ApiError as error:
        # 409: the Lease was renewed after all, or the name belongs to a new Job.
        if error.status == 409:
            return None
        hint = _OPERATOR_HINT if resource is PODS and error.status == 403 else error.hint
        return abandoned.swept(f"{error} {hint}")
    except ClusterError as error:
        return abandoned.swept(f"{error} {error.hint}")
    return None if gone else abandoned.swept()
