"""PathwaysJob -> JobSet: the head with Pathways' programs and the user's containers, and one worker Job per slice.

A pure function, so that the controller and a client that expands a job itself create the same JobSet. It is the one
that Google's controller (google/pathways-job) makes, but for the differences that docs/jobs.md lists. The workers, the
network and the startup policy are those of a service (:mod:`pathways_jupyter.service.service_jobset`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pathways_jupyter.service import names, service_jobset
from pathways_jupyter.service.pathwaysjob import definition, fields
from pathways_jupyter.service.pathwaysjob.definition import InvalidJob, Problem
from pathways_jupyter.service.pathwaysjob.fields import Component, Job, Manifest

JOB_LABEL = "pathways-jupyter/pathwaysjob"
"""On the JobSet: the name of its PathwaysJob."""

RIGID_RESTARTS = 4
"""How often each worker of a job that is not elastic may be restarted."""

_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
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
    definition.check(manifest, strict=strict)
    job = fields.read(manifest)
    elastic = job.elastic_slices > 0
    made = service_jobset.manifest(
        service_jobset.ServiceSpec(
            job.instance_type,
            job.slices,
            f"{names.IMAGE_REPOSITORY}/{names.SERVER_IMAGE}:{job.version}",
            name=job.name,
            namespace=job.namespace,
            gcs_scratch_location=job.directory,
            sidecar_image=_component(job, fields.SIDECAR).image,
            max_restarts=job.max_restarts,
            max_slice_restarts=job.max_slice_restarts if elastic else RIGID_RESTARTS,
            host_network=True,
            labels={**job.labels, JOB_LABEL: job.name},
        )
    )
    if not job.namespace:
        del made["metadata"]["namespace"]
    # All but kubectl's copy of the PathwaysJob, with which `kubectl apply` would compare the JobSet.
    annotations = {key: value for key, value in job.annotations.items() if key != _LAST_APPLIED}
    if annotations:
        made["metadata"]["annotations"] = annotations
    head, workers = made["spec"]["replicatedJobs"]
    _finish_workers(workers, job)
    _finish_head(head, job, annotations, workers["template"]["spec"]["template"]["spec"]["nodeSelector"])
    if not job.headless:
        # Workers never end by themselves: the job is complete when the user's containers are.
        made["spec"]["successPolicy"] = {"operator": "All", "targetReplicatedJobs": [names.HEAD_JOB]}
    if job.suspended:
        made["spec"]["suspend"] = True
    return made


def _finish_workers(workers: Manifest, job: Job) -> None:
    pod = workers["template"]["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    if job.metrics:
        worker["args"].append(_METRICS)
    _customize(worker, _component(job, fields.WORKER))
    for sidecar in pod.get("initContainers") or ():
        _customize(sidecar, _component(job, fields.SIDECAR))
    # The job's own selectors come last: other nodes cannot run its slices.
    pod["nodeSelector"] = {**job.node_selector, **pod["nodeSelector"]}
    if job.grace_seconds is not None:
        pod["terminationGracePeriodSeconds"] = job.grace_seconds
    if job.priority_class:
        pod["priorityClassName"] = job.priority_class


def _finish_head(head: Manifest, job: Job, annotations: Mapping[str, str], worker_nodes: Mapping[str, str]) -> None:
    template = head["template"]["spec"]["template"]
    (manager,) = template["spec"]["containers"]
    programs = [manager, _proxy(job)]
    for program, kind in zip(programs, (fields.SERVER, fields.PROXY), strict=True):
        if job.metrics:
            program["args"].append(_METRICS)
        _customize(program, _component(job, kind))
    if job.elastic_slices:
        # After the job's own flags: of two with one name the last counts, and that has to be `elasticSlices`.
        programs[1]["args"].append(f"--num_elastic_slices={job.elastic_slices}")
    # Beside its own workers, the head must not have a host to itself.
    own = {} if job.mode == fields.COLOCATE_MODE else {_EXCLUSIVE: "kubernetes.io/hostname"}
    head["template"]["metadata"] = {"annotations": {**annotations, **own}}
    theirs = (job.template or {}).get("metadata") or {}
    template["metadata"] = {
        "annotations": {**(theirs.get("annotations") or {}), **annotations, **own},
        **({"labels": dict(theirs["labels"])} if theirs.get("labels") else {}),
    }
    pod = _user_pod(job, programs) if job.template is not None else {"restartPolicy": "Never", "containers": programs}
    if job.mode == fields.COLOCATE_MODE:
        _colocate(pod, job, worker_nodes)
    template["spec"] = pod


def _user_pod(job: Job, programs: list[Manifest]) -> Manifest:
    """The user's pod with Pathways' programs as sidecars, which start before the user's containers and end after."""
    assert job.template is not None
    pod: Manifest = copy.deepcopy(job.template.get("spec") or {})
    pod.setdefault("restartPolicy", "Never")
    sidecars = [{**program, "restartPolicy": "Always"} for program in programs]
    # The user's come first: they may prepare what the programs need.
    pod["initContainers"] = [*(pod.get("initContainers") or ()), *sidecars]
    mains = [each for each in pod["containers"] if each["name"] == job.main_container]
    if not mains:
        path, problem = "spec.controller.mainContainerName", f"the template has no container {job.main_container!r}"
        raise InvalidJob(f"{path}: {problem}.", [Problem(path, problem)])
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


def _proxy(job: Job) -> Manifest:
    arguments = [
        f"--server_port={names.PROXY_PORT}",
        f"--resource_manager_address=$(PATHWAYS_HEAD):{names.RESOURCE_MANAGER_PORT}",
        f"--gcs_scratch_location={job.directory}",
    ]
    if _component(job, fields.SIDECAR).image:
        arguments.append("--sidecar_name=external")
    return {
        "name": names.PROXY_CONTAINER,
        "image": f"{names.IMAGE_REPOSITORY}/{names.PROXY_IMAGE}:{job.version}",
        "imagePullPolicy": "Always",
        "args": arguments,
        "env": [
            {"name": "PATHWAYS_HEAD", "valueFrom": copy.deepcopy(_COORDINATOR)},
            {"name": "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "value": "true"},
        ],
        "ports": [{"containerPort": names.PROXY_PORT, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "16", "memory": "100G"}},
    }


def _colocate(pod: Manifest, job: Job, nodes: Mapping[str, str]) -> None:
    """Put the head on the nodes of its own workers, which `nodes` selects, and of no other job's."""
    own = {"key": names.JOBSET_NAME_LABEL, "operator": "In", "values": [job.name]}
    other = {"key": names.JOBSET_NAME_LABEL, "operator": "NotIn", "values": [job.name]}
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


def _customize(container: Manifest, component: Component) -> None:
    if component.image:
        container["image"] = component.image
    container["args"] = [*(container.get("args") or ()), *component.flags]
    if not container["args"]:
        del container["args"]
    named = {each["name"] for each in component.env}
    kept = [each for each in container.get("env") or () if each["name"] not in named]
    container["env"] = [*kept, *(dict(each) for each in component.env)]


def _component(job: Job, kind: str) -> Component:
    return job.components.get(kind, Component())
