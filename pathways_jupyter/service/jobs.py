"""Jobs as a user works with them: list, look at, follow, read logs, suspend, resume, delete.

A job is a PathwaysJob, which :mod:`.pathwaysjob.submission` creates, or a JobSet of the same shape: one into which this
package has expanded a job where a cluster has only JobSet, or one of Google's tools. All commands work for both.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pathways_jupyter.base.errors import ApiError, ClusterError, ConnectionLost, ServiceError, Unreachable
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import clock
from pathways_jupyter.kube import objects, pods
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import EVENTS, JOBSETS, PATHWAYS_JOBS, PODS, Object, Resource
from pathways_jupyter.kube.watch import Change, ChangeType, watch
from pathways_jupyter.kube.watch_group import WatchGroup, if_allowed
from pathways_jupyter.service import discovery, job_parts, names, podstate, queues
from pathways_jupyter.service.job_parts import JobParts
from pathways_jupyter.service.pathwaysjob import conditions, definition, description
from pathways_jupyter.service.pathwaysjob.description import (
    EventInfo,
    JobInfo,
    PodInfo,
    event_info,
    is_job,
    job_info,
    main_container,
    pod_info,
)

_ENDED_PODS = frozenset({"Succeeded", "Failed"})
_SHOWN_EVENTS = 10
_TRACEBACK_LINES = 200
"""Last lines of a failed program's log, in which its error is looked for."""
_WARNINGS = "type=Warning"
"""The field selector of events that say what went wrong."""
_PAUSE_SECONDS = 0.5
"""Shortest time between two reads: each takes four requests, and a starting job changes many times a second."""
_AGAIN_SECONDS = 5.0
"""Between two attempts to read a job while the cluster cannot be reached."""
_CREATION_SECONDS = 10.0


@dataclass(frozen=True)
class JobDetails:
    """Everything that is known about a job.

    Attributes:
      waits: Why parts of it do not start; empty if all are only starting, run, or are over.
      outdated: Since when and why it could not be read again, as a sentence; empty while it is as it is now.
      unread: Why events are missing, as a sentence; empty if they are not.
    """

    job: JobInfo
    conditions: tuple[Mapping[str, Any], ...]
    pods: tuple[PodInfo, ...]
    events: tuple[EventInfo, ...]
    waits: str = ""
    outdated: str = ""
    unread: str = ""


async def list_jobs(client: Client, namespace: str) -> tuple[JobInfo, ...]:
    """Return the jobs of a namespace, the newest first.

    Raises:
      ServiceError: There is no such namespace.
    """

    async def listed(resource: Resource) -> Sequence[Object]:
        try:
            return (await objects.list_(client, resource, namespace=namespace)).items
        except ApiError as error:
            # A cluster may have one of the kinds, or none.
            if error.status == 404:
                return ()
            raise

    jobs, jobsets = await asyncio.gather(listed(PATHWAYS_JOBS), listed(JOBSETS))
    by_name = {each["metadata"]["name"]: each for each in jobsets}
    infos = []
    for each in jobs:
        jobset = by_name.get(each["metadata"]["name"])
        infos.append(job_info(each, jobset if jobset is not None and job_parts.is_own(each, jobset) else None))
    mine = {each.name for each in infos}
    infos += [job_info(each) for each in jobsets if is_job(each) and each["metadata"]["name"] not in mine]
    if not infos:
        await discovery.require_namespace(client, namespace)
    known = (replace(each, clock_ahead=client.clock_ahead) for each in infos)
    return tuple(sorted(known, key=lambda each: (-each.created, each.name)))


async def find(client: Client, name: str, *, namespace: str) -> JobInfo:
    """Return a job.

    Raises:
      ServiceError: There is none of that name.
    """
    return job_info((await _get(client, name, namespace))[0])


async def details(client: Client, name: str, *, namespace: str, events: bool = True) -> JobDetails:
    """Return everything about a job.

    Args:
      events: False to leave them out: they cost a list of those of the whole namespace. Warnings are read anyway
        while parts of the job are missing, because nothing else says why.

    Raises:
      ServiceError: There is none of that name.
    """
    seen, unread = tuple[Object, ...](), ""
    if events:
        # Those of a crowded namespace are many pages, of which each waits for the one before.
        parts, seen_or_refused = await asyncio.gather(_parts(client, name, namespace), _events(client, namespace))
        seen, unread = seen_or_refused
    else:
        parts = await _parts(client, name, namespace)
    if not events and parts.lacking:
        seen, _ = await _events(client, namespace, fields=_WARNINGS)
    uids = parts.uids
    with_objects = [(event_info(each), each) for each in seen if (each.get("involvedObject") or {}).get("uid") in uids]
    # Many have whole seconds; within one, the order is that in which the API server received them.
    with_objects.sort(key=lambda pair: (int(pair[0].time), int(pair[1]["metadata"].get("resourceVersion") or 0)))
    manifest = parts.manifest
    info, waits = job_info(manifest, parts.jobset), ""
    if info.state in {conditions.PENDING, conditions.RUNNING}:
        waits = description.stuck(parts.pods) or description.refused([each for _, each in with_objects], parts.lacking)
        if not waits and parts.lacks_jobs:
            waits = description.unready(parts.pods)
        info = replace(info, reason=waits or info.reason)
    elif info.state == conditions.FAILED:
        info = replace(info, reason=await _failure(client, info, parts))
    queued = parts.jobset if info.queue and info.state in {conditions.PENDING, conditions.SUSPENDED} else None
    if queued is not None and (why := await queues.waiting(client, queued)):
        info, waits = replace(info, reason=why), why
    return JobDetails(
        replace(info, clock_ahead=client.clock_ahead),
        tuple((manifest.get("status") or {}).get("conditions") or ()),
        tuple(sorted((pod_info(each) for each in parts.pods), key=lambda each: each.role)),
        tuple(event for event, _ in with_objects[-_SHOWN_EVENTS:]) if events else (),
        waits,
        unread=unread,
    )


async def _events(client: Client, namespace: str, *, fields: str = "") -> tuple[tuple[Object, ...], str]:
    """Return the events of a namespace, or none and why they cannot be read: they only explain."""
    try:
        return (await objects.list_(client, EVENTS, namespace=namespace, fields=fields)).items, ""
    except ApiError as error:
        return (), f"Events are not shown. {error} {error.hint}".strip()


async def _parts(client: Client, name: str, namespace: str) -> JobParts:
    """Return a job and its parts; the job is read before its pods, which have failed by the time at which it has."""
    manifest, jobset = await _get(client, name, namespace)
    return await job_parts.fetch(client, manifest, jobset)


async def _failure(client: Client, info: JobInfo, parts: JobParts) -> str:
    """Return why a job has failed, as the container says that made it fail."""
    failed = description.failure(parts.pods, info.reason, main=main_container(parts.manifest))
    if failed is None:
        return info.reason
    lines: list[str] = []
    if failed.has_log:
        # Without the log, the exit code is the reason.
        with contextlib.suppress(ClusterError):
            pod, container = failed.pod, failed.container
            stream = pods.logs(client, pod, namespace=info.namespace, container=container, tail=_TRACEBACK_LINES)
            lines = [line async for line in stream]
    return failed.reason(lines)


async def follow(client: Client, name: str, *, namespace: str, events: bool = True) -> AsyncGenerator[JobDetails, None]:
    """Yield a job whenever it or its pods change, until it is over and its pods have ended.

    While the cluster cannot be reached, it is yielded as it was last, and as outdated.

    Args:
      events: As for :func:`details`.

    Raises:
      ServiceError: There is none of that name, or it was deleted meanwhile.
      ClusterError: The cluster could not be reached at the start, or watching is forbidden.
    """
    now = await details(client, name, namespace=namespace, events=events)
    kind = PATHWAYS_JOBS if now.job.kind == definition.KIND else JOBSETS
    watches = {
        kind: watch(client, kind, namespace=namespace, name=name),
        PODS: watch(client, PODS, namespace=namespace, labels=f"{names.JOBSET_NAME_LABEL}={name}"),
        EVENTS: _warnings(client, name, namespace),
    }
    if now.job.queue:
        watches[queues.WORKLOADS] = _workload(client, name, namespace)
    async with WatchGroup(watches) as changes:
        while True:
            yield now
            if now.job.state in conditions.FINAL and all(pod.state in _ENDED_PODS for pod in now.pods):
                return
            await asyncio.sleep(_PAUSE_SECONDS)
            # A job that could not be read need not change once it can.
            await changes.batch(_AGAIN_SECONDS if now.outdated else None)
            asked = time.time()
            try:
                now = await details(client, name, namespace=namespace, events=events)
            except ServiceError as error:
                raise ServiceError(f"Job {name} was deleted.") from error
            except (ConnectionLost, Unreachable) as error:
                now = replace(now, outdated=now.outdated or f"As it was at {clock(asked)}. {error}")


async def _warnings(client: Client, name: str, namespace: str) -> AsyncGenerator[Change, None]:
    """Yield the warnings about parts of a job; none without the permission to read them.

    A refusal to make a pod changes nothing but these.
    """
    warnings = if_allowed(watch(client, EVENTS, namespace=namespace, fields=_WARNINGS))
    async with contextlib.aclosing(warnings):
        async for each in warnings:
            regarded = str((each.object.get("involvedObject") or {}).get("name"))
            if f"{regarded}-".startswith(f"{name}-"):
                yield each


async def _workload(client: Client, name: str, namespace: str) -> AsyncGenerator[Change, None]:
    """Yield the changes of a job's Workload; none where the details say why it cannot be read."""
    with contextlib.suppress(ApiError, ServiceError):
        manifest, _ = await _get(client, name, namespace)
        jobset, kind = await _until_made(client, manifest), await queues.served(client, queues.WORKLOADS)
        selector = f"{names.QUEUED_UID_LABEL}={jobset['metadata']['uid']}"
        async with contextlib.aclosing(watch(client, kind, namespace=namespace, labels=selector)) as workloads:
            async for each in workloads:
                yield each


async def until_over(client: Client, name: str, *, namespace: str) -> AsyncGenerator[JobInfo, None]:
    """Yield a job whenever its state, its restarts or what it waits for change, until it is over.

    Raises:
      ServiceError: There is none, or it was deleted.
    """
    before: tuple[str, int, str] | None = None
    async with contextlib.aclosing(follow(client, name, namespace=namespace, events=False)) as changes:
        async for each in changes:
            now = each.job.state, each.job.restarts, each.waits
            if now != before:
                before = now
                yield each.job
            if each.job.state in conditions.FINAL:
                return


def idles(job: JobInfo) -> bool:
    """Return whether a job waits for clients until it is deleted: it is headless, and runs."""
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
    container: str = job_parts.MAIN,
    which: str = "",
    follow: bool = False,
    tail: int | None = None,
) -> AsyncGenerator[str, None]:
    """Yield the lines of a log of a job.

    Args:
      container: The name of any container of its head or its workers; where none has that name, ``main`` is the job's
        own program, and ``rm``, ``proxy`` and ``worker`` are Pathways'.
      which: Slice and host of the worker, ``SLICE-HOST``; default: the first.

    Raises:
      ServiceError: There is no such container now.
    """
    manifest, jobset = await _get(client, name, namespace)
    parts = await job_parts.fetch(client, manifest, jobset)
    pod, container = parts.locate(container, which)
    lines = pods.logs(client, pod, namespace=namespace, container=container, follow=follow, tail=tail)
    try:
        async with contextlib.aclosing(lines):
            async for line in lines:
                yield line
    except ApiError as error:
        if error.status != 400:
            raise
        # The container has no log yet. Where one before it has failed, that is why.
        pod_object = await objects.find(client, PODS, pod, namespace=namespace)
        first, why = podstate.failed_before(pod_object, container)
        if not first:
            raise
        raise ServiceError(
            f"Container {container} of job {name} has not started: {first}, which runs before it, failed ({why}).",
            hint=advice("{job_logs:{name} {first}} shows what it said.", name=name, first=first),
        ) from error


async def suspend(client: Client, name: str, *, namespace: str, suspended: bool = True) -> JobInfo:
    """Suspend a job, which ends its pods, or resume it, which starts it again from the beginning.

    Raises:
      ServiceError: There is none of that name, or it is over.
    """
    manifest, _ = await _get(client, name, namespace)
    info = job_info(manifest)
    if info.state in conditions.FINAL:
        raise ServiceError(f"Job {name} is over ({info.state}).", hint="Apply it again under another name.")
    try:
        # A new job has its JobSet a moment later.
        async with asyncio.timeout(_CREATION_SECONDS):
            jobset = await _until_made(client, manifest)
    except TimeoutError:
        raise ServiceError(
            f"Job {name} has no JobSet after {_CREATION_SECONDS:g} s.",
            hint="Check that a controller of PathwaysJobs runs: pathways-jupyter operator manifests installs one.",
        ) from None
    if info.queue:
        # Kueue undoes any other change of a job that it manages.
        await queues.set_active(client, jobset, active=not suspended)
    else:
        change = {"metadata": {"uid": jobset["metadata"]["uid"]}, "spec": {"suspend": suspended}}
        await objects.patch(client, JOBSETS, name, change, namespace=namespace)
    return info


async def delete(client: Client, name: str, *, namespace: str) -> bool:
    """Delete a job and everything in it; False if there was none."""
    for resource in (PATHWAYS_JOBS, JOBSETS):
        try:
            present = await objects.find(client, resource, name, namespace=namespace)
        except ApiError as error:
            if error.status != 404:
                raise
            continue
        if present is not None and is_job(present):
            return await objects.delete(client, resource, name, namespace=namespace, uid=present["metadata"]["uid"])
    return False


async def _until_made(client: Client, manifest: Object) -> Object:
    """Return the JobSet of a job as soon as there is one; that of an earlier job of its name may still be ending."""
    meta = manifest["metadata"]
    async with contextlib.aclosing(watch(client, JOBSETS, namespace=meta["namespace"], name=meta["name"])) as changes:
        async for change in changes:
            if change.type in {ChangeType.ADDED, ChangeType.MODIFIED} and job_parts.is_own(manifest, change.object):
                return change.object
    raise AssertionError("a watch ends only by an error")


async def _get(client: Client, name: str, namespace: str) -> tuple[Object, Object | None]:
    """Return a job, and the JobSet of its name."""
    kinds = (PATHWAYS_JOBS, JOBSETS)
    both = await asyncio.gather(*(objects.find(client, each, name, namespace=namespace) for each in kinds))
    for each in both:
        if each is not None and is_job(each):
            return each, both[1]
    raise ServiceError(f"There is no job {name} in namespace {namespace}.", hint=advice("{job_list} shows them."))
