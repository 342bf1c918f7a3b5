"""The names that Pathways and this package use in Kubernetes: labels, ports, containers, images.

Only constants, which the embedded cluster imports too, so that both sides agree.
"""

from __future__ import annotations

# What this package writes on the objects that it creates.
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "pathways-jupyter"
SESSION_LABEL = "pathways-jupyter/session"
USER_LABEL = "pathways-jupyter/user"
SERVICE_LABEL = "pathways-jupyter/service"
KERNEL_ANNOTATION = "pathways-jupyter/kernel"
NOTEBOOK_ANNOTATION = "pathways-jupyter/notebook"
CORDONED_ANNOTATION = "pathways-jupyter/cordoned"
"""On a node that is kept from new pods on purpose: the service, the slice, and the fault for which it is down."""
HOST_ANNOTATION = "pathways-jupyter/host"
KEEP_ANNOTATION = "pathways-jupyter/keep-seconds"
"""On a proxy Job with a relay, and on its Lease: how long after the last renewal it is kept unless it is needed."""
RECLAIMED_ANNOTATION = "pathways-jupyter/reclaimed"
"""On a proxy Job: the sessions, with commas, whose slices it has taken while they were silent."""
FIGURES_ANNOTATION = "pathways-jupyter/figures"
"""On a Lease: the session's figures at its last renewal, as JSON; see service/session_figures.py."""
EMBEDDED_LABEL = "pathways-jupyter/embedded"
"""On a service of an embedded cluster: the cluster's name, because such a service is repaired in another way."""

SOCKETS_ANNOTATION = "pathways-jupyter/sockets"
"""On a pod of an embedded cluster: the directory of the unix sockets that stand for its ports."""

# Ports of the Pathways programs.
PROXY_PORT = 29000
RESOURCE_MANAGER_PORT = 29001
WORKER_PORT = 29005
SIDECAR_PORT = 50051

# JobSet: what a Shared Pathways Service is made of.
JOBSET_GROUP = "jobset.x-k8s.io"
JOBSET_VERSION = "v1alpha2"
JOBSET_NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
REPLICATED_JOB_REPLICAS_LABEL = "jobset.sigs.k8s.io/replicatedjob-replicas"
JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"
COORDINATOR_LABEL = "jobset.sigs.k8s.io/coordinator"
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
JOB_UID_LABEL = "batch.kubernetes.io/controller-uid"
POD_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
HEAD_JOB = "pathways-head"
WORKER_JOB = "worker"
WORKER_JOBS = ("worker", "pathways-worker")
"""Names of the workers' replicated job in the services that Pathways' tools create."""

# Containers.
RESOURCE_MANAGER_CONTAINER = "pathways-rm"
WORKER_CONTAINER = "pathways-worker"
PROXY_CONTAINER = "pathways-proxy"
SIDECAR_CONTAINER = "colocated-python-sidecar"

# Node labels and resources of GKE's TPU node pools.
ACCELERATOR_LABEL = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
NODEPOOL_LABEL = "cloud.google.com/gke-nodepool"
TPU_RESOURCE = "google.com/tpu"

# Images.
IMAGE_REPOSITORY = "us-docker.pkg.dev/cloud-tpu-v2-images/pathways"
SERVER_IMAGE = "server"
PROXY_IMAGE = "proxy_server"
SIDECAR_REPOSITORY = "us-docker.pkg.dev/cloud-tpu-v2-images/pathways-colocated-python"

DEFAULT_SERVICE = "pathways-cluster"
DEFAULT_NAMESPACE = "default"
