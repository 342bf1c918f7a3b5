"""PathwaysJob -> JobSet: the head with Pathways' programs and the user's containers, and one worker Job per slice.

A pure function, so that the controller and a client that expands a job itself create the same JobSet. It is the one
that Google's controller (google/pathways-job) makes, but for the differences that docs/jobs.md lists. The workers, the
network and the startup policy are those of a service (:mod:`pathways_jupyter.service.service_jobset`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.service import names, service_jobset
from pathways_jupyter.service.pathwaysjob import definition, validation
from pathways_jupyter.service.pathwaysjob.validation import Problem, refusal
from pathways_jupyter.service.service_jobset import Manifest

JOB_LABEL = "pathways-jupyter/pathwaysjob"
"""On the JobSet: the name of its PathwaysJob."""

RIGID_RESTARTS = 4
"""Restarts that are allowed for each worker of a job that is not elastic."""

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_METRICS = "--enable_metrics_collection=true"
_COORDINATOR = {"fieldRef": {"fieldPath": f"metadata.labels['{names.COORDINATOR_LABEL}']"}}


def expand(manifest: Mapping[str, Any], *, strict: bool = False) -> Manifest:
    """Return the JobSet of a PathwaysJob.

    Args:
      strict: Refuse fields that the API does not have.

    Raises:
      ConfigError: The job cannot be run: it does not fit its schema, its TPU type does not exist, or its name is too
        long for its pods' names.
    """
    validation.check(manifest, strict=strict)
    metadata, spec = manifest["metadata"], manifest["spec"]
    name, controller = str(metadata.get("name") or ""), spec["controller"]
    if len(spec["workers"]) != 1:
        raise ConfigError(
            f"PathwaysJob {name!r} needs one entry in spec.workers.", hint="All slices of a job are of one type."
        )
    (slices,) = spec["workers"]
    if (restarts := slices.get("maxSliceRestarts")) is None:
        restarts = 1
    made = service_jobset.manifest(
        service_jobset.ServiceSpec(
            tpu.parse_instance_type(f"{slices['type']}:{slices['topology']}"),
            slices["numSlices"],
            f"{names.IMAGE_REPOSITORY}/{names.SERVER_IMAGE}:{_version(spec)}",
            name=name,
            namespace=metadata.get("namespace") or "",
            gcs_scratch_location=spec.get("pathwaysDir") or "",
            sidecar_image=_component(spec, definition.SIDECAR).get("image") or "",
            max_restarts=spec.get("maxRestarts") or 0,
            max_slice_restarts=restarts if controller.get("elasticSlices") else RIGID_RESTARTS,
            host_network=True,
            labels={**(metadata.get("labels") or {}), JOB_LABEL: name},
        )
    )
    if not metadata.get("namespace"):
        del made["metadata"]["namespace"]
    # All but kubectl's copy of the PathwaysJob, with which `kubectl apply` would compare the JobSet.
    annotations = {key: each for key, each in (metadata.get("annotations") or {}).items() if key != _LAST_APPLIED}
    if annotations:
        made["metadata"]["annotations"] = annotations
    head, workers = made["spec"]["replicatedJobs"]
    _finish_workers(workers, spec)
    _finish_head(head, name, spec, annotations, workers["template"]["spec"]["template"]["spec"]["nodeSelector"])
    if controller.get("template") is not None:
        # Workers never end by themselves: the job is complete when the user's containers are.
        made["spec"]["successPolicy"] = {"operator": "All", "targetReplicatedJobs": [names.HEAD_JOB]}
    if annotations.get(definition.START_SUSPENDED_ANNOTATION) == "true":
        made["spec"]["suspend"] = True
    return made


def _finish_workers(workers: Manifest, spec: Mapping[str, Any]) -> None:
    (slices,) = spec["workers"]
    pod = workers["template"]["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    if spec["controller"].get("enableMetricsCollection"):
        worker["args"].append(_METRICS)
    _customize(worker, _component(spec, definition.WORKER))
    for sidecar in pod.get("initContainers") or ():
        _customize(sidecar, _component(spec, definition.SIDECAR))
    # The job's own selectors come last: other nodes cannot run its slices.
    pod["nodeSelector"] = {**(slices.get("nodeSelector") or {}), **pod["nodeSelector"]}
    if slices.get("terminationGracePeriodSeconds") is not None:
        pod["terminationGracePeriodSeconds"] = slices["terminationGracePeriodSeconds"]
    if slices.get("priorityClassName"):
        pod["priorityClassName"] = slices["priorityClassName"]


def _finish_head(
    head: Manifest, name: str, spec: Mapping[str, Any], annotations: Mapping[str, str], worker_nodes: Mapping[str, str]
) -> None:
    controller = spec["controller"]
    user = controller.get("template")
    template = head["template"]["spec"]["template"]
    (manager,) = template["spec"]["containers"]
    programs = [manager, _proxy(spec)]
    for program, kind in zip(programs, (definition.SERVER, definition.PROXY), strict=True):
        if controller.get("enableMetricsCollection"):
            program["args"].append(_METRICS)
        _customize(program, _component(spec, kind))
    if controller.get("elasticSlices"):
        # After the job's own flags: of two with one name the last counts, and that has to be `elasticSlices`.
        programs[1]["args"].append(f"--num_elastic_slices={controller['elasticSlices']}")
    colocated = controller.get("deploymentMode") == definition.COLOCATE_MODE
    pod: Manifest = {"restartPolicy": "Never", "containers": programs}
    if user is not None:
        pod = _user_pod(user, controller.get("mainContainerName") or definition.MAIN_CONTAINER, programs)
    # Only on the host's network two heads compete for ports, and beside its own workers a head has no host to itself.
    own = {service_jobset.EXCLUSIVE: "kubernetes.io/hostname"} if pod.get("hostNetwork") and not colocated else {}
    head["template"]["metadata"] = {"annotations": {**annotations, **own}}
    theirs = (user or {}).get("metadata") or {}
    template["metadata"] = {
        "annotations": {**(theirs.get("annotations") or {}), **annotations, **own},
        **({"labels": dict(theirs["labels"])} if theirs.get("labels") else {}),
    }
    if colocated:
        _colocate(pod, name, worker_nodes)
    template["spec"] = pod


def _user_pod(template: Mapping[str, Any], main: str, programs: list[Manifest]) -> Manifest:
    """Return the user's pod with Pathways' programs as sidecars, which start before the containers and end after."""
    pod: Manifest = copy.deepcopy(template.get("spec") or {})
    pod.setdefault("restartPolicy", "Never")
    sidecars = [{**program, "restartPolicy": "Always"} for program in programs]
    # The user's come first: they may prepare what the programs need.
    pod["initContainers"] = [*(pod.get("initContainers") or ()), *sidecars]
    mains = [each for each in pod["containers"] if each["name"] == main]
    if not mains:
        path, problem = "spec.controller.mainContainerName", f"the template has no container {main!r}"
        raise refusal([Problem(path, problem)])
    for container in mains:
        _set_environment(container)
    return pod


def _set_environment(container: Manifest) -> None:
    """Point the JAX of the user's main container at the proxy of this job, whatever the user set."""
    ours: list[Manifest] = [
        {"name": "PATHWAYS_HEAD", "valueFrom": copy.deepcopy(_COORDINATOR)},
        {"name": "JAX_PLATFORMS", "value": "proxy"},
        {"name": "XCLOUD_ENVIRONMENT", "value": "GCP"},
        {"name": "JAX_BACKEND_TARGET", "value": f"grpc://$(PATHWAYS_HEAD):{names.PROXY_PORT}"},
    ]
    named = {each["name"] for each in ours}
    # First, because a variable can refer only to those before it.
    container["env"] = [*ours, *(each for each in container.get("env") or () if each["name"] not in named)]


def _proxy(spec: Mapping[str, Any]) -> Manifest:
    arguments = [
        f"--server_port={names.PROXY_PORT}",
        f"--resource_manager_address=$(PATHWAYS_HEAD):{names.RESOURCE_MANAGER_PORT}",
        f"--gcs_scratch_location={spec.get('pathwaysDir') or ''}",
    ]
    if _component(spec, definition.SIDECAR).get("image"):
        arguments.append("--sidecar_name=external")
    return {
        "name": names.PROXY_CONTAINER,
        "image": f"{names.IMAGE_REPOSITORY}/{names.PROXY_IMAGE}:{_version(spec)}",
        "imagePullPolicy": "Always",
        "args": arguments,
        "env": [
            {"name": "PATHWAYS_HEAD", "valueFrom": copy.deepcopy(_COORDINATOR)},
            {"name": names.INSECURE_CREDENTIALS, "value": "true"},
        ],
        "ports": [{"containerPort": names.PROXY_PORT, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "16", "memory": "100G"}},
    }


def _colocate(pod: Manifest, name: str, nodes: Mapping[str, str]) -> None:
    """Put the head on the nodes of its own workers, which `nodes` selects, and of no other job's."""
    own = {"key": names.JOBSET_NAME_LABEL, "operator": "In", "values": [name]}
    other = {"key": names.JOBSET_NAME_LABEL, "operator": "NotIn", "values": [name]}
    any_job = {"key": "job-name", "operator": "Exists"}
    # Not the template's own: where the workers are is decided by theirs.
    pod["nodeSelector"] = dict(nodes)
    pod["tolerations"] = [
        *(pod.get("tolerations") or ()),
        {"key": names.TPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"},
    ]
    pod["affinity"] = {
        **(pod.get("affinity") or {}),
        "podAffinity": _required(own),
        "podAntiAffinity": _required(other, any_job),
    }


def _required(*expressions: Manifest) -> Manifest:
    term = {"labelSelector": {"matchExpressions": list(expressions)}, "topologyKey": names.NODEPOOL_LABEL}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _customize(container: Manifest, component: Mapping[str, Any]) -> None:
    if component.get("image"):
        container["image"] = component["image"]
    container["args"] = [*(container.get("args") or ()), *(component.get("customFlags") or ())]
    if not container["args"]:
        del container["args"]
    added = component.get("customEnv") or ()
    replaced = {each["name"] for each in added}
    others = [each for each in container.get("env") or () if each["name"] not in replaced]
    container["env"] = [*others, *(dict(each) for each in added)]


def _component(spec: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return what the job changes about one of Pathways' programs."""
    return next((each for each in spec.get("customComponents") or () if each["componentType"] == kind), {})


def _version(spec: Mapping[str, Any]) -> str:
    """Return the tag of the Pathways images."""
    return str(spec.get("pathwaysVersion") or "latest")
