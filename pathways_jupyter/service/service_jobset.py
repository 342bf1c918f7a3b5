"""The JobSet of a Shared Pathways Service: one resource manager, and one worker Job per slice.

Plain data, so that the embedded cluster runs the same manifest as a real cluster. Its shape and names follow those of
Pathways' own tools, because those tools (and ours) find services by these names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import LARGEST_NUMBER
from pathways_jupyter.service import names

Manifest = dict[str, Any]

MAX_NAME = 22
"""Workers find the head by the label `jobset.sigs.k8s.io/coordinator`, which holds the head's DNS name: the service's
name twice, and 19 more characters. A label has at most 63."""

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""On a Job of a JobSet and its pods: no other Job of any JobSet may be in the same domain of this topology key."""
_SHARED_TMP = "shared-tmp"
# Worker and sidecar pass large arrays to each other through files in memory.
_SHARED_MEMORY = "shared-memory"
_SHARED_MEMORY_PATH = "/tmp/sidecar_dir"
_SHARED_MEMORY_ENV = {"name": "CLOUD_PATHWAYS_SIDECAR_SHM_DIRECTORY", "value": _SHARED_MEMORY_PATH}


@dataclass(frozen=True)
class PodPlacement:
    """Nodes and annotations for the pods of a part of a service, beyond what their type of slice requires.

    Attributes:
      node_selector: Labels of the nodes.
      tolerations: Taints that the pods tolerate, as Kubernetes writes them.
      annotations: Annotations of the pods, for what places them, e.g. Kueue or a provisioning request.
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ServiceSpec:
    """A service to create.

    Attributes:
      instance_type: The kind of its slices; a service has one kind.
      slices: Number of slices.
      image: Image of resource manager and workers, with its tag.
      name: The JobSet's name; :func:`address` derives the service's address from it.
      gcs_scratch_location: Bucket path (``gs://...``) where the programs keep scratch data.
      sidecar_image: Image of the colocated Python sidecar; empty for a service without one.
      max_restarts: How often the whole JobSet may be recreated after its head failed.
      max_slice_restarts: How often the workers of one slice may be restarted, per host.
      service_account: Kubernetes account of all its pods; empty for the namespace's default.
      head: Placement of the head, e.g. in a node pool without TPUs.
      workers: That of the workers.
      resource_manager_flags: Additional flags of the resource manager.
      worker_flags: Additional flags of the workers.
      host_network: Run the workers on their nodes' network. Then no NetworkPolicy applies to them.
      nodes: Address ranges of the nodes from which such workers connect, for the resource manager's NetworkPolicy.
      labels: Additional labels of the JobSet.
      annotations: Its annotations.
    """

    instance_type: tpu.InstanceType
    slices: int
    image: str
    name: str = names.DEFAULT_SERVICE
    namespace: str = names.DEFAULT_NAMESPACE
    gcs_scratch_location: str = ""
    sidecar_image: str = ""
    max_restarts: int = 30
    max_slice_restarts: int = 1_000_000
    service_account: str = ""
    head: PodPlacement = field(default_factory=PodPlacement)
    workers: PodPlacement = field(default_factory=PodPlacement)
    resource_manager_flags: tuple[str, ...] = ()
    worker_flags: tuple[str, ...] = ()
    host_network: bool = False
    nodes: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def head_host(name: str) -> str:
    """Return the DNS name of the head of service `name`."""
    return f"{name}-{names.HEAD_JOB}-0-0.{name}"


def address(name: str) -> str:
    """Return the address of service `name`'s resource manager, which clients pass as ``service``."""
    return f"{head_host(name)}:{names.RESOURCE_MANAGER_PORT}"


def check_name(name: str, what: str) -> None:
    """Check that the names of pods can begin with `name`, of a service or a job.

    Raises:
      ConfigError: It is too long, or has other characters.
    """
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a {what}.",
            hint=f"Use at most {MAX_NAME} lower-case letters, digits and dashes, beginning with a letter.",
        )


def manifest(spec: ServiceSpec) -> Manifest:
    """Return the JobSet of `spec`.

    Raises:
      ConfigError: The name does not fit into pod names, or there is no slice.
    """
    check_name(spec.name, "service")
    tpu.parse_count(spec.slices, str(spec.instance_type))
    pod: Manifest = {"restartPolicy": "Never", "containers": [_resource_manager(spec)]}
    _place(pod, spec.head, spec.service_account)
    head = _replicated_job(
        names.HEAD_JOB, replicas=1, pods=1, backoff_limit=0, annotations=spec.head.annotations, pod=pod
    )
    return {
        "apiVersion": f"{names.JOBSET_GROUP}/{names.JOBSET_VERSION}",
        "kind": "JobSet",
        "metadata": {
            "name": spec.name,
            "namespace": spec.namespace,
            "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY, **spec.labels},
            **({"annotations": dict(spec.annotations)} if spec.annotations else {}),
        },
        "spec": {
            "coordinator": {"replicatedJob": names.HEAD_JOB},
            "failurePolicy": {"maxRestarts": spec.max_restarts, "restartStrategy": "Recreate"},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
            "replicatedJobs": [head, _workers(spec)],
            # Kueue resumes it; where it does not handle JobSets, nothing runs past the quota.
            **({"suspend": True} if names.QUEUE_LABEL in spec.labels else {}),
        },
    }


def _workers(spec: ServiceSpec) -> Manifest:
    hosts = spec.instance_type.hosts
    pod: Manifest = {
        "restartPolicy": "OnFailure",
        "nodeSelector": {
            names.ACCELERATOR_LABEL: spec.instance_type.machine.accelerator,
            names.TOPOLOGY_LABEL: spec.instance_type.topology,
        },
        "containers": [_worker(spec)],
        "volumes": [{"name": _SHARED_TMP, "hostPath": {"path": "/tmp", "type": "DirectoryOrCreate"}}],
    }
    if spec.host_network:
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if spec.sidecar_image:
        pod["initContainers"] = [_sidecar(spec)]
        pod["volumes"].append({"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}})
    _place(pod, spec.workers, spec.service_account)
    return _replicated_job(
        names.WORKER_JOB,
        replicas=spec.slices,
        pods=hosts,
        backoff_limit=min(hosts * spec.max_slice_restarts, LARGEST_NUMBER),
        exclusive=names.NODEPOOL_LABEL,
        annotations=spec.workers.annotations,
        pod=pod,
    )


def _place(pod: Manifest, placement: PodPlacement, account: str) -> None:
    further = {
        "nodeSelector": {**pod.get("nodeSelector", {}), **placement.node_selector},
        "tolerations": [dict(each) for each in placement.tolerations],
        "serviceAccountName": account,
    }
    pod |= {name: value for name, value in further.items() if value}


def _replicated_job(
    name: str,
    *,
    replicas: int,
    pods: int,
    backoff_limit: int,
    annotations: Mapping[str, str],
    pod: Manifest,
    exclusive: str = "",
) -> Manifest:
    marked = {"metadata": {"annotations": {EXCLUSIVE: exclusive}}} if exclusive else {}
    of_pods = {**annotations, **({EXCLUSIVE: exclusive} if exclusive else {})}
    return {
        "name": name,
        "replicas": replicas,
        "template": {
            **marked,
            "spec": {
                "backoffLimit": backoff_limit,
                "completionMode": "Indexed",
                "completions": pods,
                "parallelism": pods,
                "template": {**({"metadata": {"annotations": of_pods}} if of_pods else {}), "spec": pod},
            },
        },
    }


def _resource_manager(spec: ServiceSpec) -> Manifest:
    return {
        "name": names.RESOURCE_MANAGER_CONTAINER,
        "image": spec.image,
        "imagePullPolicy": "Always",
        "args": [
            f"--server_port={names.RESOURCE_MANAGER_PORT}",
            f"--gcs_scratch_location={spec.gcs_scratch_location}",
            "--node_type=resource_manager",
            f"--instance_count={spec.slices}",
            f"--instance_type={spec.instance_type}",
            *spec.resource_manager_flags,
        ],
        "env": [
            _from_field("REPLICATED_JOB_NAME", "annotations", names.REPLICATED_JOB_LABEL),
            _from_field("JOBSET_NAME", "annotations", names.JOBSET_NAME_LABEL),
            _from_field("HOST_ADDRESS", "labels", names.COORDINATOR_LABEL),
            {"name": "TPU_SKIP_MDS_QUERY", "value": "true"},
        ],
        "ports": _ports(names.RESOURCE_MANAGER_PORT, names.RESOURCE_MANAGER_PORT + 1),
        "resources": {"limits": {"cpu": "8", "memory": "32G"}},
    }


def _worker(spec: ServiceSpec) -> Manifest:
    container: Manifest = {
        "name": names.WORKER_CONTAINER,
        "image": spec.image,
        "imagePullPolicy": "Always",
        "args": [
            f"--server_port={names.WORKER_PORT}",
            f"--resource_manager_address=$(PATHWAYS_HEAD):{names.RESOURCE_MANAGER_PORT}",
            f"--gcs_scratch_location={spec.gcs_scratch_location}",
            *spec.worker_flags,
        ],
        "env": [
            {"name": "TPU_MIN_LOG_LEVEL", "value": "0"},
            {"name": "TF_CPP_MIN_LOG_LEVEL", "value": "0"},
            {"name": "XCLOUD_ENVIRONMENT", "value": "GCP"},
            {"name": "MEGASCALE_GRPC_ENABLE_XOR_TRACER", "value": "false"},
            _from_field("MEGASCALE_NUM_SLICES", "labels", names.REPLICATED_JOB_REPLICAS_LABEL),
            _from_field("MEGASCALE_SLICE_ID", "labels", names.JOB_INDEX_LABEL),
            _from_field("JOBSET_NAME", "annotations", names.JOBSET_NAME_LABEL),
            _from_field("REPLICATED_JOB_NAME", "annotations", names.REPLICATED_JOB_LABEL),
            _from_field("PATHWAYS_HEAD", "labels", names.COORDINATOR_LABEL),
            _from_field("MEGASCALE_COORDINATOR_ADDRESS", "labels", names.COORDINATOR_LABEL),
        ],
        "ports": _ports(names.WORKER_PORT, names.WORKER_PORT + 1, 8471, 8080),
        "resources": {"limits": {names.TPU_RESOURCE: str(spec.instance_type.chips_per_host)}},
        "volumeMounts": [{"name": _SHARED_TMP, "mountPath": "/tmp"}],
    }
    if spec.sidecar_image:
        # Without the flag, the worker sends arrays to the sidecar over gRPC.
        container["args"].append(f"--cloud_pathways_sidecar_shm_directory={_SHARED_MEMORY_PATH}")
        container["env"].append(dict(_SHARED_MEMORY_ENV))
        container["volumeMounts"].append({"name": _SHARED_MEMORY, "mountPath": _SHARED_MEMORY_PATH})
    return container


def _sidecar(spec: ServiceSpec) -> Manifest:
    # An init container with a restart policy runs beside the others and is started first: the worker calls it.
    return {
        "name": names.SIDECAR_CONTAINER,
        "image": spec.sidecar_image,
        "imagePullPolicy": "Always",
        "restartPolicy": "Always",
        "env": [
            {"name": "GRPC_SERVER_ADDRESS", "value": f"0.0.0.0:{names.SIDECAR_PORT}"},
            dict(_SHARED_MEMORY_ENV),
        ],
        "ports": _ports(names.SIDECAR_PORT),
        "volumeMounts": [
            {"name": _SHARED_TMP, "mountPath": "/tmp"},
            {"name": _SHARED_MEMORY, "mountPath": _SHARED_MEMORY_PATH},
        ],
    }


def _ports(*ports: int) -> list[Manifest]:
    return [{"containerPort": port, "protocol": "TCP"} for port in ports]


def _from_field(variable: str, kind: str, key: str) -> Manifest:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{kind}['{key}']"}}}
