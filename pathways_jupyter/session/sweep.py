"""Remove what a session leaves in the cluster: one session's objects, and those of dead supervisors by their records.

Objects are found by the session's label and not by recorded names, so any process can clean up (the supervisor at its
end, the kernel after its supervisor died, a user days later), at any stage of the session.

Run as a program it takes session ids: a kernel whose supervisor died starts it instead of cleaning up by itself.
``pathways-jupyter clean``, the server extension and the next supervisor call :func:`sweep_dead` for all records whose
supervisor is gone.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Sequence

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ApiError, ClusterError, PathwaysError, SessionError
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES, PODS, Object, Resource, delete, list_
from pathways_jupyter.service.names import SESSION_LABEL
from pathways_jupyter.session import clusters, orphan_files, protocol, registry
from pathways_jupyter.session.clusters import Embedded
from pathways_jupyter.session.registry import SessionRecord

PATIENCE_SECONDS = 120.0
"""Longest time of retries while the API server is unreachable, before cleaning up is left to a later sweep."""

_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 5.0


async def remove(
    client: Client,
    namespace: str,
    session: str,
    *,
    job: Object | None = None,
    patience: float = PATIENCE_SECONDS,
    waiting: Callable[[str], None] = lambda reason: None,
    embedded: Embedded | None = None,
) -> None:
    """Delete the Job and the Lease of `session`; the cluster then ends its pod.

    The pod is deleted too if its Job was deleted without it, as Kubernetes does where a request does not say otherwise.

    Args:
      job: The Job that the caller has made, which owns all else that it made: then no more is looked for, unless that
        Job has gone without the rest.
      patience: Seconds to retry while the API server is unreachable.
      waiting: Called once with the reason when that is so.
      embedded: The cluster, if it is the embedded one: once it has ended, nothing is left to remove.

    Raises:
      SessionError: Some objects could not be deleted; the message says why.
    """
    removing = _remove(client, namespace, session, job, patience, waiting)
    # Concurrently: a request to an API server that has just died is retried for a while, in case it restarts.
    ending = [] if embedded is None else [embedded.until_ended(_FIRST_PAUSE_SECONDS)]
    removed, *_ = await tasks.first_done(removing, *ending)
    if removed is not None and not (embedded is not None and embedded.has_ended()):
        removed.result()


async def _remove(
    client: Client,
    namespace: str,
    session: str,
    job: Object | None,
    patience: float,
    waiting: Callable[[str], None],
) -> None:
    reported = False
    async for _ in (attempts := Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=patience)):
        try:
            if job is None or not await _delete(client, JOBS, job):
                await _delete_all(client, namespace, session)
            break
        except ClusterError as error:
            refused = isinstance(error, ApiError) and error.status in {401, 403}
            if refused or attempts.is_over:
                raise SessionError(
                    f"The objects of session {session} in namespace {namespace} could not be deleted: {error}",
                    hint="pathways-jupyter clean tries again, and so does the next connect once the lease has expired.",
                ) from error
            if not reported:
                reported = True
                waiting(str(error))


async def _delete_all(client: Client, namespace: str, session: str) -> None:
    labels, kinds = f"{SESSION_LABEL}={session}", (JOBS, LEASES, PODS)
    listed = await asyncio.gather(*(list_(client, each, namespace=namespace, labels=labels) for each in kinds))
    async with tasks.group() as group:
        for resource, listing in zip(kinds, listed, strict=True):
            for item in listing.items:
                if resource is not PODS or not item["metadata"].get("ownerReferences"):
                    group.create_task(_delete(client, resource, item))


async def _delete(client: Client, resource: Resource, item: Object) -> bool:
    """Delete an object, and in the background what it owns; False when it did not exist any more."""
    name, namespace, uid = (item["metadata"][key] for key in ("name", "namespace", "uid"))
    try:
        # By uid: the session's next proxy has the same names, and a request may arrive after it was made, when a
        # reconnect did not wait for the answer.
        return await delete(client, resource, name, namespace=namespace, uid=uid)
    except ApiError as error:
        if resource is PODS and error.status == 403:
            raise SessionError(
                f"Pod {name} in namespace {namespace} has lost its Job, and holds its slices: {error}",
                hint="Where an operator runs, it deletes the pod within a minute; the pod ends at its own "
                f"deadline at the latest. With the permission: kubectl delete pod {name} -n {namespace}.",
            ) from error
        if error.status != 409:
            raise
        return False


logger = logging.getLogger(__name__)


def dead() -> list[SessionRecord]:
    """Return the sessions whose supervisor ended without cleaning up.

    The supervisor of another machine that shares the home directory cannot be queried from here; its session counts as
    dead once the cluster must have ended its proxy.
    """
    return [record for record in registry.sessions() if not may_live(record)]


def may_live(record: SessionRecord) -> bool:
    """Return whether the supervisor of `record` may be running, as far as this machine can know."""
    if record.is_here:
        return registry.is_alive(record)
    allowed = protocol.config_from_json(record.config).max_lifetime
    return time.time() < max(record.created, record.state_since) + allowed


async def sweep(record: SessionRecord, *, patience: float = PATIENCE_SECONDS) -> None:
    """Remove what the dead session of `record` left, first in the cluster, then on this machine.

    Args:
      patience: Seconds to retry while the API server is unreachable.

    Raises:
      PathwaysError: Something in the cluster could not be removed; the record stays for the next sweep.
    """
    embedded = Embedded.of(record)
    # A session that was attached to a job has made nothing in the cluster, and its user may not even list Jobs there.
    made = record.namespace and not record.pathways_job
    if made and not (embedded is not None and embedded.has_ended()):
        async with Client(await clusters.resolve(record)) as client:
            await remove(client, record.namespace, record.id, patience=patience)
    # Last, and not after an error: the record is what the next sweep finds the rest by.
    registry.remove(record)


async def sweep_dead() -> list[str]:
    """Sweep every dead session of this machine whose cluster can be reached.

    A failure is logged, and does not stop the sweep of the others.

    Returns:
      The ids of the sessions that were removed completely.
    """
    swept = []
    for record in dead():
        try:
            await sweep(record, patience=0)
        except PathwaysError as error:
            logger.warning("session %s: %s", record.id, error)
        except Exception:
            # One damaged record must not keep the objects of all other sessions in the cluster.
            logger.exception("session %s cannot be swept", record.id)
        else:
            swept.append(record.id)
    for left in orphan_files.find():
        try:
            orphan_files.remove(left)
        except SessionError as error:
            logger.warning("session %s: %s", left.session, error)
        else:
            swept.append(left.session)
    return swept


async def _sweep_all(sessions: Sequence[str]) -> int:
    status = 0
    for session in sessions:
        record = registry.read(session)
        if record is None:
            continue
        try:
            await sweep(record)
            logger.info("session %s: cleaned up after its supervisor", session)
        except PathwaysError as error:
            logger.error("session %s: %s %s", session, error, error.hint)
            status = 1
    return status


def main(arguments: Sequence[str]) -> int:
    """Sweep the sessions named in `arguments`; return 0 if nothing of them is left."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s sweep: %(message)s")
    return asyncio.run(_sweep_all(arguments))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
