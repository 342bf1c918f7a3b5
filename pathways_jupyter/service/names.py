"""The names that Pathways and this package use in Kubernetes: labels, ports, containers, images.

The embedded cluster imports them too, so that both sides agree. Names and labels of objects are made here from the
names of users and notebooks, which may contain any character.
"""

from __future__ import annotations

import getpass
import os
import re
import unicodedata
from pathlib import PurePath

# What this package writes on the objects that it creates.
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "pathways-jupyter"
OPERATOR_LEASE = "pathways-jupyter-operator"
"""The Lease of the operator that leads."""
SESSION_LABEL = "pathways-jupyter/session"
"""The session that the object belongs to."""
USER_LABEL = "pathways-jupyter/user"
"""Whose session it is."""
SERVICE_LABEL = "pathways-jupyter/service"
"""The service that the session uses."""
SESSIONS = f"{MANAGED_BY_LABEL}={MANAGED_BY},{SESSION_LABEL}"
"""The label selector of what belongs to sessions."""
CHIPS_QUEUE_LABEL = "pathways-jupyter/queue"
"""On a proxy and its Lease: the queue of Kueue's from which its service has its chips."""
KERNEL_ANNOTATION = "pathways-jupyter/kernel"
"""The kernel's id."""
NOTEBOOK_ANNOTATION = "pathways-jupyter/notebook"
"""On a proxy Job, and on its Lease: the notebook's path."""
CORDONED_ANNOTATION = "pathways-jupyter/cordoned"
"""On a node that is kept from new pods on purpose: the service, the slice, and the fault for which it is down."""
HOST_ANNOTATION = "pathways-jupyter/host"
"""The machine that the notebook runs on."""
SUSPEND_AFTER_ANNOTATION = "pathways-jupyter/suspend-after-seconds"
"""Of a service: after how many seconds without use its sessions are suspended, unless their users want less."""
KEEP_ANNOTATION = "pathways-jupyter/keep-seconds"
"""On a proxy Job with a relay, and on its Lease: how long after the last renewal it is kept unless it is needed."""
RECLAIMED_ANNOTATION = "pathways-jupyter/reclaimed"
"""On a session's Lease: the sessions, with commas, whose slices it has taken while they were silent."""
FIGURES_ANNOTATION = "pathways-jupyter/figures"
"""On a Lease: the session's figures at its last renewal, as JSON."""
EMBEDDED_LABEL = "pathways-jupyter/embedded"
"""On a service of an embedded cluster: the cluster's name, because such a service is repaired in another way."""

SOCKETS_ANNOTATION = "pathways-jupyter/sockets"
"""On a pod of an embedded cluster: the directory of the unix sockets that stand for its ports."""

# Ports of the Pathways programs.
PROXY_PORT = 29000
RESOURCE_MANAGER_PORT = 29001
WORKER_PORT = 29005
SIDECAR_PORT = 50051

INSECURE_CREDENTIALS = "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"
"""Without it JAX's client and the proxy demand ALTS of each other, which only works inside Google Cloud."""

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

# Kueue: what puts a Job or a JobSet into a queue, and what is on the Workload that it makes for one.
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
QUEUED_UID_LABEL = "kueue.x-k8s.io/job-uid"

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

MAX_LABEL = 63
# The pod of a Job gets six characters more, and both must fit into a label.
MAX_JOB_NAME = 52
PREFIX = "pathways-proxy"


def current_user() -> str:
    """Return the name of this process's user, which labels all that a user owns, such as sessions and proxies.

    On a JupyterHub it is the name that the hub has for the user: all of its pods run as one user of their image.
    """
    return os.environ.get("JUPYTERHUB_USER") or login_name()


def login_name() -> str:
    """Return the name by which this process's user logs in to hosts; the uid where the system has no name for it.

    A pod with a random uid and no entry in the passwd file is common; a constant such as "unknown" would make all of
    its users one.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def label_value(text: str) -> str:
    """Return `text` as a label's value; empty when no character of it can be used.

    That is at most 63 letters, digits, dots, dashes and underscores, with a letter or digit at both ends.
    """
    allowed = re.sub(r"[^A-Za-z0-9._-]+", "-", _plain(text))
    return allowed.strip("._-")[:MAX_LABEL].rstrip("._-")


def name_part(text: str, length: int) -> str:
    """Return `text` as a part of an object's name: at most `length` lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", _plain(text).lower()).strip("-")[:length].rstrip("-")


def job_name(user: str, session: str) -> str:
    """Return the name of a session's proxy Job: it contains the user, for people, and is as unique as `session`."""
    tail = name_part(session, 24) or "session"
    room = MAX_JOB_NAME - len(PREFIX) - len(tail) - 2
    middle = name_part(user.partition("@")[0], room)
    return "-".join(part for part in (PREFIX, middle, tail) if part)


def short_path(path: str) -> str:
    """Return the last part of a notebook's path, for display."""
    return PurePath(path).name


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def service_of(service: str) -> tuple[str, str]:
    """Return a service's name from `service` (its name or its address), and the namespace if the address has one.

    The name is empty for an address that is not a service's.
    """
    if ":" not in service:
        return service, ""
    host = service.rpartition(":")[0]
    first, *rest = host.split(".")
    name, separator, _ = first.partition(f"-{HEAD_JOB}")
    # <pod>.<jobset>.<namespace>.svc...
    return (name if separator else ""), (rest[1] if len(rest) > 1 else "")
