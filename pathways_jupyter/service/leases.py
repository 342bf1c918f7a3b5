"""Leases: detect proxies whose session has died, and delete them.

The supervisor renews its session's Lease. When a whole machine dies, the Lease expires, and the next sweep (by a
connect, the server extension, the operator or `pathways-jupyter clean`) deletes the proxy Job. Several processes may
sweep at the same time. The Lease is deleted first, and only if it has not changed since it was read, so a renewal at
the last moment saves the Job.

All times are the API server's, because the clocks of laptops differ by more than a lease.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pathways_jupyter.errors import ApiError, ClusterError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.credentials import parse_time
from pathways_jupyter.kube.objects import JOBS, LEASES, Object
from pathways_jupyter.service import names

DEFAULT_SECONDS = 60.0
RENEWALS_PER_LEASE = 4
"""More than one, so that a lease survives a few failed renewals."""


@dataclass(frozen=True)
class Swept:
    """A proxy that was deleted, or (in a dry run) would be.

    Attributes:
      reason: Why it counts as abandoned.
      error: Why it could not be deleted, and what to do; empty when it could.
    """

    job: str
    namespace: str
    session: str
    user: str
    notebook: str
    reason: str
    error: str = ""
    uid: str = field(default="", compare=False)


async def create(client: Client, job: Object, *, seconds: float = DEFAULT_SECONDS, holder: str = "") -> Object:
    """Create the Lease of a proxy Job, which owns it, so that they are deleted together.

    Args:
      job: The Job as the API server created it.
      seconds: How long the Job stays without a renewal.
      holder: The process that renews it, for people to read.

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
    spec = lease.get("spec") or {}
    renewed = spec.get("renewTime") or spec.get("acquireTime") or lease["metadata"].get("creationTimestamp")
    if not renewed:
        return 0.0
    return parse_time(str(renewed)) + float(spec.get("leaseDurationSeconds") or DEFAULT_SECONDS)


def is_stale(lease: Object, now: float) -> bool:
    """Whether `lease` has expired."""
    return now > end(lease)


async def sweep(
    client: Client, namespace: str, *, dry_run: bool = False, user: str = "", session: str = ""
) -> tuple[Swept, ...]:
    """Delete the proxy Jobs of sessions that have died.

    Only Jobs with this package's labels are considered. A Job that cannot be deleted is reported in
    :attr:`Swept.error`, and does not stop the others.

    Args:
      namespace: Empty for all namespaces.
      dry_run: Only report what would be deleted.
      user: Only Jobs of this user (the label's value).
      session: Only the Job of this session.

    Raises:
      ApiError: Listing Jobs or Leases is forbidden.
      ClusterError: The server could not be reached.
    """
    selector = _selector(user, session)
    # Jobs first: then a listed Job without a listed Lease has none, or is too young to be considered abandoned.
    jobs = await objects.list_(client, JOBS, namespace=namespace, labels=selector)
    if not jobs.items:
        return ()
    leases = await objects.list_(client, LEASES, namespace=namespace, labels=selector)
    by_place = {_place(lease): lease for lease in leases.items}
    now = client.now()
    abandoned = [
        (job, by_place.get(_place(job)), reason)
        for job in jobs.items
        if (reason := _abandoned(job, by_place.get(_place(job)), now))
    ]
    if dry_run:
        return tuple(_swept(job, reason) for job, _, reason in abandoned)
    done = await asyncio.gather(*(_clear(client, job, lease, reason) for job, lease, reason in abandoned))
    return tuple(each for each in done if each is not None)


def stamp(seconds: float) -> str:
    """Return seconds since the epoch as a Kubernetes MicroTime."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _selector(user: str, session: str) -> str:
    wanted = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.USER_LABEL: user, names.SESSION_LABEL: session}
    return ",".join([*(f"{key}={value}" for key, value in wanted.items() if value), names.SESSION_LABEL])


def _place(item: Object) -> tuple[str, str]:
    return str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"])


def _abandoned(job: Object, lease: Object | None, now: float) -> str:
    """Return why `job` is considered abandoned; empty when it is not."""
    metadata: Mapping[str, object] = job["metadata"]
    if metadata.get("deletionTimestamp"):
        return ""
    # A Lease of another owner belongs to an earlier Job of the same name.
    if lease is not None and any(
        owner.get("uid") == metadata.get("uid") for owner in lease["metadata"].get("ownerReferences") or ()
    ):
        seconds = (lease.get("spec") or {}).get("leaseDurationSeconds")
        return f"its lease of {seconds} s was not renewed" if is_stale(lease, now) else ""
    age = now - parse_time(str(metadata["creationTimestamp"]))
    return "it never got a lease" if age > DEFAULT_SECONDS else ""


async def _clear(client: Client, job: Object, lease: Object | None, reason: str) -> Swept | None:
    """Delete a Job; None when another sweep has deleted it, or when its session is alive after all."""
    name, namespace = str(job["metadata"]["name"]), str(job["metadata"]["namespace"])
    try:
        if lease is not None:
            metadata = lease["metadata"]
            await objects.delete(
                client,
                LEASES,
                name,
                namespace=namespace,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )
        gone = not await objects.delete(client, JOBS, name, namespace=namespace, uid=job["metadata"]["uid"])
    except ApiError as error:
        # 409: the Lease was renewed after all, or the name belongs to a new Job.
        return None if error.status == 409 else _swept(job, reason, f"{error} {error.hint}")
    except ClusterError as error:
        return _swept(job, reason, f"{error} {error.hint}")
    return None if gone else _swept(job, reason)


def _swept(job: Object, reason: str, error: str = "") -> Swept:
    metadata = job["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return Swept(
        job=str(metadata["name"]),
        namespace=str(metadata.get("namespace") or ""),
        session=str(labels.get(names.SESSION_LABEL, "")),
        user=str(labels.get(names.USER_LABEL, "")),
        notebook=str(annotations.get(names.NOTEBOOK_ANNOTATION, "")),
        reason=reason,
        error=error,
        uid=str(metadata.get("uid") or ""),
    )
