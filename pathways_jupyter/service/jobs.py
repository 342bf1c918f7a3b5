"""PathwaysJobs as a user works with them: list, look at, follow, read logs, suspend, resume, delete.

:mod:`.pathwaysjob.submission` creates them. Where a cluster has only JobSet, a job is the JobSet that this package has
expanded it into; :func:`find` and the commands on a job's name work for both.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pathways_jupyter.base.errors import ApiError, ClusterError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.kube import objects, pods
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import EVENTS, JOBSETS, PATHWAYS_JOBS, PODS, Object, Resource
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.service import names, queues, untrusted
from pathways_jupyter.service.logs import newest_pod
from pathways_jupyter.service.pathwaysjob import conditions, description, expansion, fields
from pathways_jupyter.service.pathwaysjob.description import (
    EventInfo,
    JobInfo,
    PodInfo,
    event_info,
    job_info,
    main_container,
    pod_info,
)
from pathways_jupyter.service.podstate import FATAL_REASONS

_CONTAINERS = {
    "main": (names.HEAD_JOB, ""),
    "rm": (names.HEAD_JOB, names.RESOURCE_MANAGER_CONTAINER),
    "proxy": (names.HEAD_JOB, names.PROXY_CONTAINER),
    "worker": (names.WORKER_JOB, names.WORKER_CONTAINER),
}
"""Where the log of each program of a job is: the part of the job, and the container."""
OVER = frozenset({conditions.COMPLETED, conditions.FAILED})
_ENDED_PODS = frozenset({"Succeeded", "Failed"})
_SHOWN_EVENTS = 10
_TRACEBACK_LINES = 200
"""Last lines of a failed program's log, in which its error is looked for."""
_PAUSE_SECONDS = 0.5
"""Shortest time between two pictures: each takes three requests, and a starting job changes many times a second."""
_CREATION_SECONDS = 10.0


@dataclass(frozen=True)
class JobPicture:
    """Everything that is known about a job."""

    job: JobInfo
    conditions: tuple[Mapping[str, Any], ...]
    pods: tuple[PodInfo, ...]
    events: tuple[EventInfo, ...]


async def list_jobs(client: Client, namespace: str) -> tuple[JobInfo, ...]:
    """Return the jobs of a namespace, the newest first."""

    async def listed(resource: Resource) -> Sequence[Object]:
        try:
            return (await objects.list_(client, resource, namespace=namespace)).items
        except ApiError as error:
            # A cluster may have one of the kinds, or none.
            if error.status == 404:
                return ()
            raise

    jobs, jobsets = await asyncio.gather(listed(PATHWAYS_JOBS), listed(JOBSETS))
    found = [job_info(each) for each in jobs]
    mine = {each.name for each in found}
    found += [job_info(each) for each in jobsets if _is_job(JOBSETS, each) and each["metadata"]["name"] not in mine]
    return tuple(sorted(found, key=lambda each: (-each.created, each.name)))


async def find(client: Client, name: str, *, namespace: str) -> JobInfo:
    """Return a job.

    Raises:
      ServiceError: There is none of that name.
    """
    return job_info(await _get(client, name, namespace))


async def picture(client: Client, name: str, *, namespace: str, events: bool = True) -> JobPicture:
    """Return everything about a job.

    Args:
      events: False to leave them out: they cost a list of those of the whole namespace.

    Raises:
      ServiceError: There is none of that name.
    """
    # The job first: its pods have failed by the time at which it has.
    manifest = await _get(client, name, namespace)
    listed = await objects.list_(client, PODS, namespace=namespace, labels=f"{names.JOBSET_NAME_LABEL}={name}")
    seen = (await objects.list_(client, EVENTS, namespace=namespace)).items if events else ()
    own = [each for each in listed.items if untrusted.Part.of(each)]
    about = (name, *(pod["metadata"]["name"] for pod in own))
    found = [(event_info(each), each) for each in seen if (each.get("involvedObject") or {}).get("name") in about]
    # Many have whole seconds; within one, the order is that in which the API server received them.
    found.sort(key=lambda pair: (int(pair[0].time), int(pair[1]["metadata"].get("resourceVersion") or 0)))
    info = await _with_reason(client, manifest, own)
    if info.queue and info.state in {conditions.PENDING, conditions.SUSPENDED}:
        is_jobset = manifest["kind"] == JOBSETS.kind
        jobset = manifest if is_jobset else await objects.find(client, JOBSETS, name, namespace=namespace)
        if jobset is not None and (waits := await queues.waiting(client, jobset)):
            info = replace(info, reason=waits)
    return JobPicture(
        info,
        tuple((manifest.get("status") or {}).get("conditions") or ()),
        tuple(sorted((pod_info(each) for each in own), key=lambda each: each.role)),
        tuple(event for event, _ in found[-_SHOWN_EVENTS:]),
    )


async def _with_reason(client: Client, manifest: Object, listed: Sequence[Object]) -> JobInfo:
    """Describe a job, with what its pods say of why it does not start or has failed."""
    info = job_info(manifest)
    if info.state in {conditions.PENDING, conditions.RUNNING}:
        return replace(info, reason=description.stuck(listed) or info.reason)
    failed = None
    if info.state == conditions.FAILED:
        failed = description.failure(listed, info.reason, main=main_container(manifest))
    if failed is None:
        return info
    lines: list[str] = []
    # Without the log, the exit code is the reason.
    with contextlib.suppress(ClusterError):
        pod, container = failed.pod, failed.container
        found = pods.logs(client, pod, namespace=info.namespace, container=container, tail=_TRACEBACK_LINES)
        lines = [line async for line in found]
    return replace(info, reason=failed.reason(lines))


async def pictures(
    client: Client, name: str, *, namespace: str, events: bool = True
) -> AsyncGenerator[JobPicture, None]:
    """Yield a job whenever it or its pods change, until it is over and its pods have ended.

    Args:
      events: As for :func:`picture`.

    Raises:
      ServiceError: There is none of that name, or it was deleted meanwhile.
      ClusterError: The cluster could not be reached at the start, or watching is forbidden.
    """
    changed = asyncio.Event()

    async def follow(resource: Resource, *, name: str = "", labels: str = "") -> None:
        changes = watch(client, resource, namespace=namespace, name=name, labels=labels)
        async with contextlib.aclosing(changes):
            async for _ in changes:
                changed.set()

    async def follow_queue() -> None:
        jobset = await _until_made(client, name, namespace)
        with contextlib.suppress(ApiError):
            # Without the permission, or without Kueue, the picture says so.
            kind = await queues.served(client, queues.WORKLOADS)
            await follow(kind, labels=f"{names.QUEUED_UID_LABEL}={jobset['metadata']['uid']}")

    found = await picture(client, name, namespace=namespace, events=events)
    watches = [
        asyncio.create_task(follow(PATHWAYS_JOBS if found.job.kind == fields.KIND else JOBSETS, name=name)),
        asyncio.create_task(follow(PODS, labels=f"{names.JOBSET_NAME_LABEL}={name}")),
    ]
    watches += [asyncio.create_task(follow_queue())] if found.job.queue else []
    try:
        while True:
            yield found
            if found.job.state in OVER and all(pod.state in _ENDED_PODS for pod in found.pods):
                return
            await asyncio.sleep(_PAUSE_SECONDS)
            news = asyncio.create_task(changed.wait())
            await asyncio.wait([news, *watches], return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            for each in watches:
                if each.done():
                    # A watch ends only by an error.
                    each.result()
            watches = [each for each in watches if not each.done()]
            changed.clear()
            try:
                found = await picture(client, name, namespace=namespace, events=events)
            except ServiceError as error:
                raise ServiceError(f"Job {name} was deleted.") from error
    finally:
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def until_over(client: Client, name: str, *, namespace: str) -> AsyncGenerator[JobInfo, None]:
    """Yield a job whenever its state, its restarts or its wait in a queue change, or it cannot start, until it is over.

    Raises:
      ServiceError: There is none, or it was deleted.
    """
    before: tuple[str, int, bool, str] | None = None
    async with contextlib.aclosing(pictures(client, name, namespace=namespace, events=False)) as found:
        async for each in found:
            stuck = any(pod.state in FATAL_REASONS for pod in each.pods)
            now = each.job.state, each.job.restarts, stuck, each.job.reason if each.job.queue else ""
            if now != before:
                before = now
                yield each.job
            if each.job.state in OVER:
                return


def idles(job: JobInfo) -> bool:
    """Whether a job waits for clients until it is deleted: it is headless, and runs."""
    return job.headless and job.state == conditions.RUNNING


async def until_settled(client: Client, name: str, *, namespace: str) -> AsyncGenerator[JobInfo, None]:
    """Yield the states of a job as :func:`until_over` does, until it is over or waits for clients.

    Raises:
      ServiceError: There is none, or it was deleted.
    """
    async with contextlib.aclosing(until_over(client, name, namespace=namespace)) as states:
        async for info in states:
            yield info
            if idles(info):
                return


async def log(
    client: Client,
    name: str,
    *,
    namespace: str,
    program: str = "main",
    which: str = "0-0",
    follow: bool = False,
    tail: int | None = None,
) -> AsyncGenerator[str, None]:
    """Yield the lines of a log of a job.

    Args:
      program: ``main`` (the user's container), ``rm``, ``proxy`` or ``worker``.
      which: Slice and host of the worker, ``SLICE-HOST``.

    Raises:
      ServiceError: There is no such pod.
    """
    role, container = _CONTAINERS[program]
    manifest = await _get(client, name, namespace)
    if program == "main":
        if job_info(manifest).headless:
            raise ServiceError(f"Job {name} is headless: it has no program of its own.", hint="Choose rm or proxy.")
        container = main_container(manifest)
    index, _, host = which.partition("-")
    labels = f"{names.JOBSET_NAME_LABEL}={name},{names.REPLICATED_JOB_LABEL}={role}"
    if role == names.WORKER_JOB:
        labels += f",{names.JOB_INDEX_LABEL}={index},{names.POD_INDEX_LABEL}={host or 0}"
    # A pod that was replaced stays for a while beside its successor.
    newest = await newest_pod(client, namespace, labels)
    if newest is None:
        raise ServiceError(
            f"Job {name} has no pod of its {program} now.", hint=advice("{job_show:{name}} says why.", name=name)
        )
    pod = newest["metadata"]["name"]
    lines = pods.logs(client, pod, namespace=namespace, container=container, follow=follow, tail=tail)
    async with contextlib.aclosing(lines):
        async for line in lines:
            yield line


async def suspend(client: Client, name: str, *, namespace: str, suspended: bool = True) -> JobInfo:
    """Suspend a job, which ends its pods, or resume it, which starts it again from the beginning.

    Raises:
      ServiceError: There is none of that name, or it is over.
    """
    info = await find(client, name, namespace=namespace)
    if info.state in OVER:
        raise ServiceError(f"Job {name} is over ({info.state}).", hint="Apply it again under another name.")
    try:
        # A new job has its JobSet a moment later.
        async with asyncio.timeout(_CREATION_SECONDS):
            jobset = await _until_made(client, name, namespace)
    except TimeoutError:
        raise ServiceError(
            f"Job {name} has no JobSet after {_CREATION_SECONDS:g} s.",
            hint="Check that a controller of PathwaysJobs runs: pathways-jupyter operator manifests installs one.",
        ) from None
    if info.queue:
        # Kueue undoes any other change of a job that it manages.
        await queues.set_active(client, jobset, active=not suspended)
    else:
        await objects.patch(client, JOBSETS, name, {"spec": {"suspend": suspended}}, namespace=namespace)
    return info


async def delete(client: Client, name: str, *, namespace: str) -> bool:
    """Delete a job and everything in it; False if there was none."""
    for resource in (PATHWAYS_JOBS, JOBSETS):
        try:
            found = await objects.find(client, resource, name, namespace=namespace)
        except ApiError as error:
            if error.status != 404:
                raise
            continue
        if found is not None and _is_job(resource, found):
            return await objects.delete(client, resource, name, namespace=namespace, uid=found["metadata"]["uid"])
    return False


async def _until_made(client: Client, name: str, namespace: str) -> Object:
    """Return the JobSet of a job as soon as there is one."""
    async with contextlib.aclosing(watch(client, JOBSETS, namespace=namespace, name=name)) as changes:
        async for change in changes:
            if change.type is ChangeType.ADDED:
                return change.object
    raise AssertionError("a watch ends only by an error")


async def _get(client: Client, name: str, namespace: str) -> Object:
    for resource in (PATHWAYS_JOBS, JOBSETS):
        found = await objects.find(client, resource, name, namespace=namespace)
        if found is not None and _is_job(resource, found):
            return found
    raise ServiceError(f"There is no job {name} in namespace {namespace}.", hint=advice("{job_list} shows them."))


def _is_job(resource: Resource, found: Object) -> bool:
    # A JobSet with an owner is part of a PathwaysJob, which may have been deleted a moment ago.
    metadata = found["metadata"]
    expanded = expansion.JOB_LABEL in (metadata.get("labels") or {}) and not metadata.get("ownerReferences")
    return resource is PATHWAYS_JOBS or expanded
