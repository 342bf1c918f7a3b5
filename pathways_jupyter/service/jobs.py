"""PathwaysJobs as a user works with them: apply, list, look at, read logs, suspend, resume, delete.

Where a cluster has only JobSet, a job is the JobSet that this package has expanded it into; :func:`find` and the
commands on a job's name work for both.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter import tpu
from pathways_jupyter.errors import ApiError, ConfigError, ServiceError
from pathways_jupyter.kube import objects, pods
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.credentials import parse_time
from pathways_jupyter.kube.objects import JOBSETS, PATHWAYS_JOBS, PODS, Object, Resource
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.service import discovery, names
from pathways_jupyter.service.pathwaysjob import conditions, expansion, fields

EVENTS = Resource("", "v1", "events", "Event")

_CONTAINERS = {
    "main": (names.HEAD_JOB, ""),
    "rm": (names.HEAD_JOB, names.RESOURCE_MANAGER_CONTAINER),
    "proxy": (names.HEAD_JOB, names.PROXY_CONTAINER),
    "worker": (names.WORKER_JOB, names.WORKER_CONTAINER),
}
PROGRAMS = tuple(_CONTAINERS)
"""The programs of a job that have a log."""

_PATH = re.compile(r"(?<![\w.])((?:spec|metadata)(?:\.\w+|\[\d+\])*)(?=[:\"])")
_SHOWN_EVENTS = 10
_CREATION_SECONDS = 10.0


@dataclass(frozen=True)
class JobInfo:
    """One job.

    Attributes:
      state: Pending, Running, Suspended, Completed or Failed.
      reason: Why it is in that state, in the cluster's words.
      headless: Whether a notebook can attach to its proxy.
      kind: ``PathwaysJob``, or ``JobSet`` for a job that was expanded by a client.
      created: Seconds since the epoch.
    """

    name: str
    namespace: str
    state: str
    reason: str
    restarts: int
    instance_type: str
    slices: int
    headless: bool
    kind: str
    created: float


@dataclass(frozen=True)
class PodInfo:
    """One pod of a job: its role (``head``, or ``slice 1 host 0``) and what it does."""

    name: str
    role: str
    state: str
    restarts: int
    node: str


@dataclass(frozen=True)
class EventInfo:
    """One event about a job, its JobSet or its pods."""

    time: float
    about: str
    reason: str
    message: str
    warning: bool


@dataclass(frozen=True)
class JobPicture:
    """Everything that is known about a job."""

    job: JobInfo
    conditions: tuple[Mapping[str, Any], ...]
    pods: tuple[PodInfo, ...]
    events: tuple[EventInfo, ...]


@dataclass(frozen=True)
class Problem:
    """Something that the API server refuses: the path of the field, if it names one, and why."""

    path: str
    message: str


class InvalidJob(ConfigError):
    """The API server refuses the job; `problems` says where."""

    def __init__(self, message: str, problems: Sequence[Problem], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)


def new(
    name: str,
    instances: Mapping[str, int],
    command: Sequence[str] = (),
    *,
    image: str = "",
    directory: str = "",
    colocate: bool = False,
    elastic_slices: int = 0,
    max_restarts: int = 0,
    max_slice_restarts: int = 0,
    version: str = "",
    sidecar_image: str = "",
) -> Object:
    """Return the manifest of a usual job: headless without a command.

    Raises:
      ConfigError: The slices are of several types, or a command has no image.
    """
    if len(instances) != 1:
        raise ConfigError("A job has slices of one type.", hint="For example: --tpu tpuv6e:2x2=2.")
    if command and not image:
        raise ConfigError("The job's command needs an image to run in.", hint="Add --image, with JAX and your program.")
    if image and not command:
        raise ConfigError(f"{image} is an image without a command.", hint="Add the command after --, or drop --image.")
    ((kind, slices),) = instances.items()
    instance_type = tpu.parse_instance_type(kind)
    workers: Object = {"type": instance_type.machine.name, "topology": instance_type.topology, "numSlices": slices}
    if max_slice_restarts:
        workers["maxSliceRestarts"] = max_slice_restarts
    controller: Object = {"deploymentMode": fields.COLOCATE_MODE if colocate else fields.DEFAULT_MODE}
    if elastic_slices:
        controller["elasticSlices"] = elastic_slices
    if command:
        main = {"name": fields.MAIN_CONTAINER, "image": image, "command": list(command)}
        controller["template"] = {"spec": {"containers": [main]}}
    spec: Object = {"workers": [workers], "controller": controller}
    if directory:
        spec["pathwaysDir"] = directory
    if version:
        spec["pathwaysVersion"] = version
    if max_restarts:
        spec["maxRestarts"] = max_restarts
    if sidecar_image:
        spec["customComponents"] = [{"componentType": fields.SIDECAR, "image": sidecar_image}]
    return {"apiVersion": fields.API_VERSION, "kind": fields.KIND, "metadata": {"name": name}, "spec": spec}


async def check(client: Client, manifest: Mapping[str, Any], *, namespace: str, as_jobset: bool = False) -> None:
    """Have the API server validate a job without storing it.

    Raises:
      InvalidJob: It refuses the job.
      ApiError, ClusterError: It cannot be asked.
    """
    await _send(client, manifest, namespace=namespace, as_jobset=as_jobset, dry_run=True)


async def apply(client: Client, manifest: Mapping[str, Any], *, namespace: str, as_jobset: bool = False) -> str:
    """Create a job; return ``created``, or ``unchanged`` when the same job is there already.

    Args:
      as_jobset: Create the JobSet that the job expands into, for clusters without the PathwaysJob API.

    Raises:
      InvalidJob: The API server refuses it, for example because fields of the existing job cannot change.
      ServiceError: The cluster has no such API; the hint says what to install.
    """
    return await _send(client, manifest, namespace=namespace, as_jobset=as_jobset, dry_run=False)


async def list_jobs(client: Client, namespace: str) -> tuple[JobInfo, ...]:
    """Return the jobs of a namespace, the newest first."""
    jobs, jobsets = await asyncio.gather(*(_all(client, each, namespace) for each in (PATHWAYS_JOBS, JOBSETS)))
    found = [_info(each) for each in jobs]
    mine = {each.name for each in found}
    found += [
        _info(each)
        for each in jobsets
        if expansion.JOB_LABEL in (each["metadata"].get("labels") or {}) and each["metadata"]["name"] not in mine
    ]
    return tuple(sorted(found, key=lambda each: (-each.created, each.name)))


async def find(client: Client, name: str, *, namespace: str) -> JobInfo:
    """Return a job.

    Raises:
      ServiceError: There is none of that name.
    """
    return _info(await _get(client, name, namespace))


async def picture(client: Client, name: str, *, namespace: str) -> JobPicture:
    """Return everything about a job.

    Raises:
      ServiceError: There is none of that name.
    """
    manifest, listed, events = await asyncio.gather(
        _get(client, name, namespace),
        objects.list_(client, PODS, namespace=namespace, labels=f"{names.JOBSET_NAME_LABEL}={name}"),
        objects.list_(client, EVENTS, namespace=namespace),
    )
    about = (name, *(pod["metadata"]["name"] for pod in listed.items))
    found = sorted((_event(each) for each in events.items if _concerns(each, about)), key=lambda each: each.time)
    return JobPicture(
        _info(manifest),
        tuple((manifest.get("status") or {}).get("conditions") or ()),
        tuple(sorted((_pod(each) for each in listed.items), key=lambda each: each.role)),
        tuple(found[-_SHOWN_EVENTS:]),
    )


async def until_over(client: Client, name: str, *, namespace: str) -> AsyncIterator[JobInfo]:
    """Yield a job whenever its state changes, until it is over.

    Raises:
      ServiceError: There is none, or it was deleted.
    """
    first = await _get(client, name, namespace)
    resource = PATHWAYS_JOBS if first["kind"] == fields.KIND else JOBSETS
    before = ""
    async for change in watch(client, resource, namespace=namespace, name=name):
        if change.type is ChangeType.DELETED:
            raise ServiceError(f"Job {name} was deleted.")
        if not change.object:
            continue
        info = _info(change.object)
        if info.state != before:
            before = info.state
            yield info
        if info.state in {conditions.COMPLETED, conditions.FAILED}:
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
        if _info(manifest).headless:
            raise ServiceError(f"Job {name} is headless: it has no program of its own.", hint="Choose rm or proxy.")
        container = _main_container(manifest)
    index, _, host = which.partition("-")
    labels = f"{names.JOBSET_NAME_LABEL}={name},{names.REPLICATED_JOB_LABEL}={role}"
    if role == names.WORKER_JOB:
        labels += f",{names.JOB_INDEX_LABEL}={index},{names.POD_INDEX_LABEL}={host or 0}"
    listed = (await objects.list_(client, PODS, namespace=namespace, labels=labels)).items
    if not listed:
        raise ServiceError(f"Job {name} has no pod of its {program} now.", hint=f"%pathways job show {name} says why.")
    newest = max(listed, key=lambda each: str(each["metadata"].get("creationTimestamp") or ""))
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
    if info.state in {conditions.COMPLETED, conditions.FAILED}:
        raise ServiceError(f"Job {name} is over ({info.state}).", hint="Apply it again under another name.")
    await _until_created(client, name, namespace)
    await objects.patch(client, JOBSETS, name, {"spec": {"suspend": suspended}}, namespace=namespace)
    return info


async def _until_created(client: Client, name: str, namespace: str) -> None:
    """Wait until the controller has created the JobSet of a new job."""
    try:
        async with asyncio.timeout(_CREATION_SECONDS):
            async for change in watch(client, JOBSETS, namespace=namespace, name=name):
                if change.type is ChangeType.ADDED:
                    return
    except TimeoutError:
        raise ServiceError(
            f"Job {name} has no JobSet after {_CREATION_SECONDS:g} s.",
            hint="Check that a controller of PathwaysJobs runs: pathways-jupyter operator manifests installs one.",
        ) from None


async def delete(client: Client, name: str, *, namespace: str) -> bool:
    """Delete a job and everything in it; False if there was none."""
    for resource in (PATHWAYS_JOBS, JOBSETS):
        try:
            found = await objects.find(client, resource, name, namespace=namespace)
        except ApiError as error:
            if error.status != 404:
                raise
            continue
        ours = resource is PATHWAYS_JOBS or (
            found is not None and expansion.JOB_LABEL in (found["metadata"].get("labels") or {})
        )
        if found is not None and ours:
            return await objects.delete(client, resource, name, namespace=namespace, uid=found["metadata"]["uid"])
    return False


# Sending.


async def _send(client: Client, manifest: Mapping[str, Any], *, namespace: str, as_jobset: bool, dry_run: bool) -> str:
    body = _sendable(manifest, namespace, as_jobset)
    resource = JOBSETS if as_jobset else PATHWAYS_JOBS
    query = {"fieldValidation": "Strict", "fieldManager": "pathways-jupyter", **({"dryRun": "All"} if dry_run else {})}
    name = body["metadata"]["name"]
    namespace = body["metadata"]["namespace"]
    try:
        await client.request("POST", resource.path(namespace), query=query, body=body)
    except ApiError as error:
        if error.status == 404:
            raise await _not_installed(client, as_jobset) from error
        if error.status == 409:
            return await _replace(client, resource, name, body, query)
        raise _invalid(name, error) from error
    return "created"


def _sendable(manifest: Mapping[str, Any], namespace: str, as_jobset: bool) -> Object:
    metadata = manifest.get("metadata")
    if manifest.get("kind") != fields.KIND or manifest.get("apiVersion") != fields.API_VERSION:
        raise InvalidJob(
            f"This is not a PathwaysJob: {manifest.get('apiVersion')} {manifest.get('kind')}.",
            [Problem("apiVersion" if manifest.get("kind") == fields.KIND else "kind", "not a PathwaysJob")],
            hint=f"Begin with apiVersion: {fields.API_VERSION} and kind: {fields.KIND}.",
        )
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        raise InvalidJob("The job has no name.", [Problem("metadata", "it has no name")], hint="Add metadata.name.")
    body = {**manifest, "metadata": {"namespace": namespace, **metadata}}
    return expansion.expand(body) if as_jobset else body


async def _replace(client: Client, resource: Resource, name: str, body: Object, query: Mapping[str, str]) -> str:
    """Update an existing job, which the API server allows for its labels and annotations only."""
    namespace = body["metadata"]["namespace"]
    before = await objects.get(client, resource, name, namespace=namespace)
    if resource is JOBSETS and expansion.JOB_LABEL not in (before["metadata"].get("labels") or {}):
        raise ServiceError(f"There is a JobSet {name} already, which is no job.", hint="Choose another name.")
    change = {
        "metadata": {key: body["metadata"][key] for key in ("labels", "annotations") if key in body["metadata"]},
        "spec": body["spec"],
    }
    path = resource.item(namespace, name)
    try:
        after = await client.request(
            "PATCH", path, query=query, body=change, content_type="application/merge-patch+json"
        )
    except ApiError as error:
        raise _invalid(name, error) from error
    same = after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    return "unchanged" if same else "updated"


def _invalid(name: str, error: ApiError) -> ApiError | InvalidJob:
    if error.status not in {400, 422}:
        return error
    text = str(error)
    starts = [(found.start(), found[1]) for found in _PATH.finditer(text)]
    ends = [*(start for start, _ in starts[1:]), len(text)]
    problems = [
        Problem(path, text[start + len(path) : end].strip(' :,"[]'))
        for (start, path), end in zip(starts, ends, strict=True)
    ]
    hint = "Fields of a job cannot change: apply it under another name." if "is immutable" in text else ""
    return InvalidJob(text, problems, hint=hint)


async def _not_installed(client: Client, as_jobset: bool) -> ServiceError:
    where = client.cluster.name
    jobset = "Install JobSet first (jobset.sigs.k8s.io)."
    if as_jobset:
        return ServiceError(f"Cluster {where} has no JobSets.", hint=jobset)
    try:
        await objects.list_(client, JOBSETS, namespace=client.namespace)
        hint = "Add --as-jobset to expand the job here, or install it: pathways-jupyter operator manifests."
    except ApiError as error:
        hint = jobset if error.status == 404 else "Ask your cluster administrator to install PathwaysJob."
        hint += " Then the API: pathways-jupyter operator manifests." if error.status == 404 else ""
    return ServiceError(f"Cluster {where} has no PathwaysJobs.", hint=hint)


# Reading.


async def _all(client: Client, resource: Resource, namespace: str) -> Sequence[Object]:
    try:
        return (await objects.list_(client, resource, namespace=namespace)).items
    except ApiError as error:
        if error.status == 404:
            return ()
        raise


async def _get(client: Client, name: str, namespace: str) -> Object:
    for resource in (PATHWAYS_JOBS, JOBSETS):
        found = await objects.find(client, resource, name, namespace=namespace)
        if found is not None and (
            resource is PATHWAYS_JOBS or expansion.JOB_LABEL in (found["metadata"].get("labels") or {})
        ):
            return {**found, "kind": resource.kind}
    raise ServiceError(f"There is no job {name} in namespace {namespace}.", hint="%pathways job list shows them.")


def _info(manifest: Mapping[str, Any]) -> JobInfo:
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    whole = manifest["kind"] == fields.KIND
    if not whole:
        status = conditions.derive({}, manifest, now="")
    state, condition = conditions.current({"status": status})
    kind, slices, headless = _shape(manifest) if whole else _jobset_shape(manifest)
    return JobInfo(
        name=metadata["name"],
        namespace=metadata.get("namespace") or "",
        state=state,
        reason=str(condition.get("message") or ""),
        restarts=int(status.get("restarts") or 0),
        instance_type=kind,
        slices=slices,
        headless=headless,
        kind=fields.KIND if whole else JOBSETS.kind,
        created=parse_time(str(metadata.get("creationTimestamp") or "1970-01-01T00:00:00Z")),
    )


def _shape(manifest: Mapping[str, Any]) -> tuple[str, int, bool]:
    try:
        job = fields.read(manifest)
    except ConfigError:
        return "", 0, False
    return str(job.instance_type), job.slices, job.headless


def _jobset_shape(jobset: Mapping[str, Any]) -> tuple[str, int, bool]:
    pod = _head_pod(jobset)
    containers = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    managers = [each for each in containers if each["name"] == names.RESOURCE_MANAGER_CONTAINER]
    said = discovery.flags(managers[0]) if managers else {}
    headless = any(each["name"] == names.PROXY_CONTAINER for each in pod.get("containers") or ())
    return said.get("instance_type", ""), int(said.get("instance_count") or 0), headless


def _head_pod(jobset: Mapping[str, Any]) -> Mapping[str, Any]:
    for each in (jobset.get("spec") or {}).get("replicatedJobs") or ():
        if each["name"] == names.HEAD_JOB:
            pod: Mapping[str, Any] = each["template"]["spec"]["template"]["spec"]
            return pod
    return {}


def _main_container(manifest: Mapping[str, Any]) -> str:
    if manifest["kind"] == fields.KIND:
        return str(manifest["spec"]["controller"].get("mainContainerName") or fields.MAIN_CONTAINER)
    found = [str(each["name"]) for each in _head_pod(manifest).get("containers") or ()]
    return fields.MAIN_CONTAINER if fields.MAIN_CONTAINER in found else found[0]


def _pod(pod: Mapping[str, Any]) -> PodInfo:
    labels, status = pod["metadata"].get("labels") or {}, pod.get("status") or {}
    if labels.get(names.REPLICATED_JOB_LABEL) == names.HEAD_JOB:
        role = "head"
    else:
        role = f"slice {labels.get(names.JOB_INDEX_LABEL, '?')} host {labels.get(names.POD_INDEX_LABEL, '?')}"
    statuses = status.get("containerStatuses") or ()
    waiting = [each["state"]["waiting"].get("reason") for each in statuses if "waiting" in (each.get("state") or {})]
    return PodInfo(
        name=pod["metadata"]["name"],
        role=role,
        state=str(next(filter(None, waiting), status.get("phase") or "Pending")),
        restarts=sum(int(each.get("restartCount") or 0) for each in statuses),
        node=str(pod["spec"].get("nodeName") or ""),
    )


def _concerns(event: Mapping[str, Any], about: Sequence[str]) -> bool:
    return (event.get("involvedObject") or {}).get("name") in about


def _event(event: Mapping[str, Any]) -> EventInfo:
    involved = event.get("involvedObject") or {}
    time = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return EventInfo(
        time=parse_time(str(time)) if time else 0.0,
        about=f"{involved.get('kind', '')} {involved.get('name', '')}",
        reason=str(event.get("reason") or ""),
        message=str(event.get("message") or ""),
        warning=event.get("type") == "Warning",
    )
