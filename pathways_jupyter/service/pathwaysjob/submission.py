"""From a wish to a job in the cluster: write its manifest, have the API server check it, create it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ApiError, ConfigError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, JOBSETS, PATHWAYS_JOBS, Object, Resource
from pathways_jupyter.service import names, queues, service_jobset, untrusted
from pathways_jupyter.service.pathwaysjob import definition, expansion, validation
from pathways_jupyter.service.pathwaysjob.validation import InvalidJob, Problem

_PATH = re.compile(r"(?<![\w.])((?:spec|metadata)(?:\.[\w/-]+|\[[^\]\s]*\])*)(?=[:\"])")
_EXTRA = re.compile(r'(?:unknown|duplicate) field "([^"]+)"')
_POD_OF_JOB = re.compile(r"(?<![\w.])spec\.template(?=[.:\"])")
_TEMPLATE = "spec.controller.template"


def new(
    name: str,
    instances: Mapping[str, int],
    command: Sequence[str] = (),
    *,
    image: str = "",
    directory: str = "",
    version: str = "",
    sidecar_image: str = "",
    queue: str = "",
    priority: str = "",
) -> Object:
    """Return the manifest of a usual job: headless without a command.

    Raises:
      ConfigError: The name is invalid, the slices are of several types, or a command has no image.
    """
    service_jobset.check_name(name, "job")
    if len(instances) != 1:
        raise ConfigError("A job has slices of one type.", hint=advice("For example: {tpu:tpuv6e:2x2=2}."))
    if command and not image:
        raise ConfigError("The job's command needs an image to run in.", hint="Add --image, with JAX and your program.")
    if image and not command:
        raise ConfigError(f"{image} is an image without a command.", hint="Add the command after --, or drop --image.")
    ((kind, slices),) = instances.items()
    instance_type = tpu.parse_instance_type(kind)
    main = {"name": definition.MAIN_CONTAINER, "image": image, "command": list(command)}
    worker = {"type": instance_type.machine.name, "topology": instance_type.topology, "numSlices": slices}
    controller = {
        "deploymentMode": definition.DEFAULT_MODE,
        "template": {"spec": {"containers": [main]}} if command else None,
    }
    sidecar = {"componentType": definition.SIDECAR, "image": sidecar_image}
    spec = {
        "workers": [worker],
        "controller": _without_empty(controller),
        "pathwaysDir": directory,
        "pathwaysVersion": version,
        "customComponents": [sidecar] if sidecar_image else None,
    }
    metadata = _without_empty({"name": name, "labels": queues.labels(queue, priority)})
    manifest = {"apiVersion": definition.API_VERSION, "kind": definition.KIND, "metadata": metadata}
    return {**manifest, "spec": _without_empty(spec)}


async def apply(
    client: Client,
    manifest: Mapping[str, Any],
    *,
    namespace: str,
    as_jobset: bool = False,
    labels: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> str:
    """Create a job; return ``created``, or ``unchanged`` when the same job is there already, or ``valid``.

    Of a job that is there, labels and annotations can change: ``updated``.

    Args:
      as_jobset: Create the JobSet that the job expands into, for clusters without the PathwaysJob API.
      labels: Labels to add, such as that of a queue.
      dry_run: Only have the API server check it, and its pod too, which it would see only when the job starts.

    Raises:
      InvalidJob: The API server refuses it, for example because fields of the existing job cannot change.
      ServiceError: The cluster has no such API; the hint says what to install. Or there is no such queue.
      ApiError, ClusterError: It cannot be asked.
    """
    body = _sendable(manifest, namespace, as_jobset, labels or {})
    resource = JOBSETS if as_jobset else PATHWAYS_JOBS
    query = {"fieldValidation": "Strict", "fieldManager": "pathways-jupyter", **({"dryRun": "All"} if dry_run else {})}
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    if queue := queues.queue_of(body):
        await queues.check(client, namespace, queue, untrusted.label(body, names.PRIORITY_LABEL))
    template = manifest["spec"]["controller"].get("template") if dry_run else None
    unchecked, posted = await asyncio.gather(
        _check_pod(client, name, namespace, template, query),
        client.request("POST", resource.path(namespace), query=query, body=body),
        return_exceptions=True,
    )
    try:
        # Errors of the pod first: they say more.
        if isinstance(unchecked, BaseException):
            raise unchecked
        if isinstance(posted, BaseException):
            raise posted
    except ApiError as error:
        if error.status == 404:
            # The API server answers so for the namespace and for the kind.
            if str(error).startswith("namespaces "):
                raise ServiceError(
                    f"There is no namespace {namespace}.", hint="Correct metadata.namespace, or create it first."
                ) from error
            raise await _not_installed(client, as_jobset) from error
        if error.status != 409:
            raise _invalid(error) from error
        done = await _replace(client, resource, name, body, query)
    else:
        done = "created"
    if dry_run:
        return f"valid, but its pod could not be checked ({unchecked})" if unchecked else "valid"
    return done


async def _check_pod(
    client: Client, name: str, namespace: str, template: Mapping[str, Any] | None, query: Mapping[str, str]
) -> str:
    """Have the API server check a job's pod as that of a Job, which is not created; return why it could not, else "".

    The definitions of PathwaysJob and JobSet know the types of a pod's fields. Its rules (two containers of one name, a
    mount of no volume, a port of 70000) and the fields of this version of Kubernetes, only the kinds with pods know.

    Raises:
      InvalidJob: It refuses something of the pod.
    """
    if template is None:
        return ""
    policy = template["spec"].get("restartPolicy") or "Never"
    pod = {**template, "spec": {**template["spec"], "restartPolicy": policy}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": f"{name}-"}, "spec": {"template": pod}}
    try:
        await client.request("POST", JOBS.path(namespace), query=query, body=job)
    except ApiError as error:
        refused = _invalid(error, pod_of_job=True)
        problems = refused.problems if isinstance(refused, InvalidJob) else ()
        if wrong := [each for each in problems if each.path.startswith(_TEMPLATE)]:
            raise validation.refusal(wrong) from error
        # For example because the user may not create Jobs: that is no fault of the pod.
        return str(error).rstrip(".")
    return ""


def _without_empty(values: Mapping[str, Any]) -> Object:
    return {key: value for key, value in values.items() if value}


def _sendable(manifest: Mapping[str, Any], namespace: str, as_jobset: bool, labels: Mapping[str, str]) -> Object:
    if manifest.get("kind") != definition.KIND or manifest.get("apiVersion") != definition.API_VERSION:
        raise InvalidJob(
            f"This is not a PathwaysJob: {manifest.get('apiVersion')} {manifest.get('kind')}.",
            [Problem("apiVersion" if manifest.get("kind") == definition.KIND else "kind", "not a PathwaysJob")],
            hint=f"Begin with apiVersion: {definition.API_VERSION} and kind: {definition.KIND}.",
        )
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        raise InvalidJob("The job has no name.", [Problem("metadata", "it has no name")], hint="Add metadata.name.")
    validation.check(manifest)
    if wrong := [*validation.unreplaced(manifest)] or [*validation.unfit(manifest)]:
        raise validation.refusal(wrong)
    body = {**manifest, "metadata": {**metadata, "namespace": metadata.get("namespace") or namespace}}
    if labels:
        body["metadata"]["labels"] = {**(metadata.get("labels") or {}), **labels}
    return expansion.expand(body, strict=True) if as_jobset else body


async def _replace(client: Client, resource: Resource, name: str, body: Object, query: Mapping[str, str]) -> str:
    """Update an existing job, which the API server allows for its labels and annotations only."""
    namespace = body["metadata"]["namespace"]
    before = await objects.get(client, resource, name, namespace=namespace)
    if resource is JOBSETS and expansion.JOB_LABEL not in (before["metadata"].get("labels") or {}):
        what = f"There is a JobSet {name} already, which job apply has not made."
        raise ServiceError(what, hint="Choose another name.")
    change = {
        "metadata": {key: body["metadata"][key] for key in ("labels", "annotations") if key in body["metadata"]},
        # A JobSet is created suspended for its queue, or because its job says so. What has become of that since, by
        # the queue or by a user, is no part of the job: to suspend one that runs would start it from the beginning.
        "spec": {key: each for key, each in body["spec"].items() if key != "suspend"},
    }
    path = resource.item(namespace, name)
    try:
        after = await client.request(
            "PATCH", path, query=query, body=change, content_type="application/merge-patch+json"
        )
    except ApiError as error:
        raise _invalid(error) from error
    same = after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    return "unchanged" if same else "updated"


def _invalid(error: ApiError, *, pod_of_job: bool = False) -> ApiError | InvalidJob:
    """Return the refusal with the fields that the server's message names; all of it where it names none.

    Args:
      pod_of_job: The server was asked about a Job with the pod: name the fields of the PathwaysJob.
    """
    if error.status not in {400, 422}:
        return error
    text = str(error)
    # A list is in brackets; it ends with a remark where rules were not evaluated because of what is named before.
    listed = text.removesuffix("]").partition(", <nil>: ")[0] if ": [" in text else text
    if pod_of_job:
        listed = _POD_OF_JOB.sub(_TEMPLATE, listed)
    problems = [Problem(path, validation.unknown_field(path)) for path in _EXTRA.findall(listed)]
    if not problems:
        starts = [*((match.start(), match[1]) for match in _PATH.finditer(listed)), (len(listed), "")]
        problems = [
            Problem(path, re.sub(r"[, \[]+\"?$", "", listed[start + len(path) : end]).lstrip(' :"'))
            for (start, path), (end, _) in pairwise(starts)
        ]
    if not problems or not all(each.message for each in problems):
        problems = [Problem("", text)]
    immutable = any("is immutable" in each.message for each in problems)
    hint = "Fields of a job cannot change: apply it under another name." if immutable else ""
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
