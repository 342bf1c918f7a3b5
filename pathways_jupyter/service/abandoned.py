"""Abandoned proxies: find those whose session has died, and delete them.

A sweep is made by a connect, the server extension, the operator or `pathways-jupyter clean`; several may sweep at the
same time. The Lease is deleted first, and only if it has not changed since it was read, so a renewal at the last moment
saves the Job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pathways_jupyter.base.errors import ApiError, ClusterError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES, PODS, Object
from pathways_jupyter.service import leases, names, proxy_job, untrusted
from pathways_jupyter.service.names import label_value

_OPERATOR_HINT = "Where an operator runs, it deletes the pod; at the latest the pod ends at its own deadline."
EVERY = 1_000_000
"""For :func:`sweep`: reclaim all that are reclaimable."""


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

    def __str__(self) -> str:
        """Return what was done, as a line of a log."""
        what = f"{self.kind} {self.namespace}/{self.job} (session {self.session} of {self.user or 'unknown'})"
        return f"cannot delete {what}: {self.error}" if self.error else f"deleted {what}: {self.reason}"


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
        objects.list_if_allowed(client, PODS, namespace=namespace, labels=selector),
    )
    orphans = [orphan for each in pods if (orphan := proxy_job.of_orphan(each)) is not None]
    if not jobs.items and not orphans:
        return ()
    listed = await objects.list_(client, LEASES, namespace=namespace, labels=selector)
    by_key = {leases.lease_key(lease): lease for lease in listed.items}
    abandoned, kept = list[tuple[Swept, Object | None]](), list[tuple[Swept, Object | None]]()
    for job in (*jobs.items, *orphans):
        judged = judge(job, by_key.get(leases.lease_key(job)), client.now())
        if judged is not None and not judged[0].kept:
            abandoned.append(judged)
        elif judged is not None and service in {"", untrusted.label(job, names.SERVICE_LABEL)}:
            kept.append(judged)
    kept.sort(key=lambda each: each[0].silent, reverse=True)
    abandoned += kept[:reclaim]
    if dry_run:
        return tuple(swept for swept, _ in abandoned)
    done = await asyncio.gather(*(_clear(client, *each) for each in abandoned))
    return tuple(each for each in done if each is not None)


def judge(job: Object, lease: Object | None, now: float) -> tuple[Swept, Object | None] | None:
    """Return why `job` is considered abandoned, and the Lease to delete with it; None when it is not.

    Args:
      job: A proxy's, or what :func:`.proxy_job.of_orphan` makes of a pod.
      lease: That of its :func:`.leases.lease_key`, if there is one.
      now: The API server's time, in seconds since the epoch.
    """
    metadata: Mapping[str, Any] = job["metadata"]
    if metadata.get("deletionTimestamp"):
        return None
    is_orphan, kept, age = "orphan_of" in job, False, now - objects.created(job)
    uid = untrusted.label(job, names.JOB_UID_LABEL) if is_orphan else str(metadata.get("uid"))
    # A Lease of another owner belongs to another Job of the same name. An orphan's loses its owner too, or has already.
    if lease is not None and (uid in leases.owners(lease) or (is_orphan and not leases.owners(lease))):
        if not leases.is_stale(lease, now):
            return None
        since = leases.renewed(lease, now)
        silent, left = now - since, leases.kept_until(lease, now) - now
        kept = left > 0
        if kept:
            reason = f"reclaimable: silent for {silent:.0f} s, and kept for {left:.0f} s more unless slices are needed"
        else:
            lost = "its Job was deleted without it, and " if is_orphan else ""
            reason = f"{lost}its lease of {leases.end(lease, now) - since:.0f} s was not renewed"
    elif is_orphan:
        # Its Lease is that of a new Job, or was removed by its session, which may not delete pods.
        silent, reason, lease = age, "its Job was deleted without it", None
    elif age > leases.DEFAULT_SECONDS:
        silent, reason = age, "it never got a lease"
    else:
        return None
    whose = untrusted.SessionLabels.of(job)
    swept = Swept(
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
    return swept, lease


async def _clear(client: Client, swept: Swept, lease: Object | None) -> Swept | None:
    """Delete a Job; None when another sweep has deleted it, or when its session is alive after all."""
    namespace, resource = swept.namespace, PODS if swept.kind == PODS.kind else JOBS
    try:
        if lease is not None:
            meta = lease["metadata"]
            uid, version = meta["uid"], meta["resourceVersion"]
            await objects.delete(client, LEASES, meta["name"], namespace=namespace, uid=uid, resource_version=version)
        was_there = await objects.delete(client, resource, swept.job, namespace=namespace, uid=swept.uid)
    except ApiError as error:
        # 409: the Lease was renewed after all, or the name belongs to a new Job.
        if error.status == 409:
            return None
        hint = _OPERATOR_HINT if resource is PODS and error.status == 403 else error.hint
        return replace(swept, error=f"{error} {hint}")
    except ClusterError as error:
        return replace(swept, error=f"{error} {error.hint}")
    return swept if was_there else None
