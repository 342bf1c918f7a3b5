"""Leases: how a proxy whose session has died without a word is told from one that lives.

The supervisor renews the session's Lease. When a whole machine dies nobody does, and whoever comes by next (a connect,
the server extension, the operator, `pathways-jupyter clean`) sweeps: it deletes the proxy Jobs whose Lease has run
out. Any number may sweep at once. The Lease is deleted first, and only if it is still the very one that was judged, so
a renewal in the last moment saves the Job.

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
"""So that a lease survives a few renewals that fail."""


@dataclass(frozen=True)
class Swept:
    """A proxy that was cleared away, or (in a dry run) would be.

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
    """Creates the Lease of a proxy Job, which goes when the Job goes.

    Args:
      job: The Job as the API server made it.
      seconds: How long the Job stays when nobody renews.
      holder: Who renews, for people to read.

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


async def renew(client: Client, name: str, *, namespace: str) -> bool:
    """Renews a Lease; False when it is gone, which means that the session has been given up.

    Raises:
      ApiError: Renewing is forbidden.
      ClusterError: The server could not be reached.
    """
    try:
        await objects.patch(client, LEASES, name, {"spec": {"renewTime": stamp(client.now())}}, namespace=namespace)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


def end(lease: Object) -> float:
    """When `lease` ends unless somebody renews it, in seconds since the epoch."""
    spec = lease.get("spec") or {}
    renewed = spec.get("renewTime") or spec.get("acquireTime") or lease["metadata"].get("creationTimestamp")
    if not renewed:
        return 0.0
    return parse_time(str(renewed)) + float(spec.get("leaseDurationSeconds") or DEFAULT_SECONDS)


def is_stale(lease: Object, now: float) -> bool:
    """Whether nobody has renewed `lease` for as long as it lasts."""
    return now > end(lease)


async def sweep(
    client: Client, namespace: str, *, dry_run: bool = False, user: str = "", session: str = ""
) -> tuple[Swept, ...]:
    """Deletes the proxy Jobs of sessions that have died.

    Only Jobs with this package's own labels are looked at. What cannot be deleted is told in :attr:`Swept.error` and
    does not keep the others.

    Args:
      namespace: Empty for all namespaces.
      dry_run: Only tell.
      user: Only Jobs of this user (the label's value).
      session: Only the Job of this session.

    Raises:
      ApiError: Listing Jobs or Leases is forbidden.
      ClusterError: The server could not be reached.
    """
    selector = _selector(user, session)
    # Jobs first: a Job that is listed had its Lease before the Leases are listed, or is too young to judge.
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
    """Seconds since the epoch as Kubernetes writes precise times."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _selector(user: str, session: str) -> str:
    wanted = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.USER_LABEL: user, names.SESSION_LABEL: session}
    return ",".join([*(f"{key}={value}" for key, value in wanted.items() if value), names.SESSION_LABEL])


def _place(item: Object) -> tuple[str, str]:
    return str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"])


def _abandoned(job: Object, lease: Object | None, now: float) -> str:
    """Why `job` counts as abandoned; empty when it does not."""
    metadata: Mapping[str, object] = job["metadata"]
    if metadata.get("deletionTimestamp"):
        return ""
    if lease is not None and any(
        owner.get("uid") == metadata.get("uid") for owner in lease["metadata"].get("ownerReferences") or ()
    ):
        seconds = (lease.get("spec") or {}).get("leaseDurationSeconds")
        return f"its lease of {seconds} s was not renewed" if is_stale(lease, now) else ""
    age = now - parse_time(str(metadata["creationTimestamp"]))
    return "it never got a lease" if age > DEFAULT_SECONDS else ""


async def _clear(client: Client, job: Object, lease: Object | None, reason: str) -> Swept | None:
    """Deletes one Job; None when somebody else did, or its session turned out to live."""
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
        # 409: the lease was renewed, or the name belongs to a new Job.
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
