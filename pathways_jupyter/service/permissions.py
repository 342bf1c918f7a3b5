"""The permissions of those who use the package: their check, and the Roles that grant them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import (
    CLAIMS,
    EVENTS,
    JOBS,
    JOBSETS,
    LEASES,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    PATHWAYS_JOBS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    Object,
    Resource,
)
from pathways_jupyter.service import queues
from pathways_jupyter.service.checks import Finding


@dataclass(frozen=True)
class Need:
    """A permission that someone needs.

    Attributes:
      level: How bad it is to lack it.
      purpose: What it is needed for, as the end of a sentence.
      role: The Role that grants it, for the advice.
    """

    resource: Resource
    verbs: tuple[str, ...]
    subresource: str = ""
    level: Tone = Tone.FAIL
    purpose: str = ""
    role: str = "pathways-jupyter-user"

    def __str__(self) -> str:
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural


def _of_role(role: str, *needs: Need, level: Tone | None = None) -> tuple[Need, ...]:
    """Return `needs` with the role of the advice, and with `level` instead of their own if it is given."""
    return tuple(replace(each, role=role, level=level or each.level) for each in needs)


NEEDS: tuple[Need, ...] = (
    Need(JOBS, ("create", "get", "list", "watch", "delete"), purpose="run a proxy"),
    Need(LEASES, ("create", "get", "list", "patch", "delete"), purpose="keep a proxy from leaking"),
    Need(PODS, ("get", "list", "watch"), purpose="follow proxy and workers"),
    Need(PODS, ("get",), "log", purpose="know which slices a proxy has"),
    # From Kubernetes 1.35 on the WebSocket needs both.
    Need(PODS, ("create", "get"), "portforward", purpose="open the tunnel"),
    Need(JOBSETS, ("get", "list", "watch"), purpose="find the service, and draw it as it changes"),
    Need(PATHWAYS_JOBS, ("list", "watch"), level=Tone.WARN, purpose="list PathwaysJobs in the sidebar"),
    Need(NETWORK_POLICIES, ("list",), level=Tone.WARN, purpose="see whether other pods can reach the proxies"),
)

IN_CLUSTER_ROLE = "pathways-jupyter-in-cluster"
IN_CLUSTER_NEEDS = _of_role(
    IN_CLUSTER_ROLE,
    Need(NETWORK_POLICIES, ("create",), level=Tone.WARN, purpose="let a notebook in the cluster connect directly"),
)
"""Only for notebooks in the cluster: everyone who may create a policy can undo every other one."""

QUEUE_NEEDS = _of_role(
    "pathways-jupyter-queues",
    Need(queues.QUEUES, ("list",), level=Tone.WARN, purpose="see whether there is such a queue"),
    Need(queues.WORKLOADS, ("list", "watch"), purpose="see why a job waits in its queue"),
    Need(queues.WORKLOADS, ("patch",), level=Tone.WARN, purpose="suspend a job that is in a queue"),
    Need(queues.VISIBLE_QUEUES, ("get",), "pendingworkloads", Tone.WARN, "see the position in the queue"),
    Need(queues.PRIORITIES, ("get",), level=Tone.WARN, purpose="see whether there is such a priority"),
    Need(queues.CLUSTER_QUEUES, ("get",), level=Tone.WARN, purpose="see the quota"),
)
"""Only for those who name a queue."""

# The permissions of those who do more than connect. Connecting needs none of these, so the doctor only warns.
JOB_NEEDS = _of_role(
    "pathways-jupyter-jobs",
    Need(PATHWAYS_JOBS, ("create", "get", "list", "watch", "patch", "delete"), purpose="use PathwaysJobs"),
    Need(JOBS, ("create", "list"), purpose="have a job's pod checked, and list a job's parts"),
    Need(JOBSETS, ("create", "get", "list", "watch", "patch", "delete"), purpose="use jobs that are JobSets"),
    Need(PODS, ("list", "watch"), purpose="follow a job's pods"),
    Need(PODS, ("get",), "log", purpose="read a job's logs, and say why it failed"),
    Need(PODS, ("create", "get"), "portforward", purpose="attach a notebook to a job"),
    Need(EVENTS, ("list", "watch"), purpose="say why a job does not start"),
    level=Tone.WARN,
)
"""Of those who use jobs; connecting to a service needs none of these."""

FAULT_NEEDS = _of_role(
    "pathways-jupyter-faults",
    Need(JOBSETS, ("get",), purpose="find the workers of a slice"),
    Need(PODS, ("list", "delete"), purpose="find workers, and keep one down (--for)"),
    Need(PODS, ("get", "create"), "exec", purpose="kill a worker from inside"),
    Need(PODS, ("create",), "eviction", purpose="drain a node"),
    Need(NODES, ("get", "list", "patch"), purpose="cordon and uncordon nodes"),
    level=Tone.WARN,
)

PLATFORM_ROLE = "pathways-platform"
_INSTALL = "pathways-operator-install"
SERVICE_NEEDS = _of_role(
    PLATFORM_ROLE,
    Need(JOBSETS, ("create", "get", "list", "watch", "delete"), purpose="create a service, and follow its start"),
    Need(NETWORK_POLICIES, ("create", "patch", "delete"), purpose="close the ports of proxies and resource manager"),
    Need(PODS, ("get", "list", "watch"), purpose="follow the service's start"),
    Need(PODS, ("get",), "log", level=Tone.WARN, purpose="see how many slices have registered"),
    Need(EVENTS, ("list", "watch"), level=Tone.WARN, purpose="see why something does not start"),
)
"""Of the namespace in which a service is deployed."""
_DEPLOY_NEEDS: tuple[Need, ...] = (
    *SERVICE_NEEDS,
    Need(JOBS, ("list", "delete"), purpose="end the sessions on a service that is deleted"),
    Need(NODES, ("list",), purpose="check the node pools before a service is deployed"),
)
INSTALL_NEEDS: tuple[Need, ...] = tuple(
    # The verbs of `kubectl apply --server-side`.
    Need(resource, ("create", "get", "patch"), purpose="install the operator", role=_INSTALL)
    for resource in (
        Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False),
        NAMESPACES,
        Resource(ROLES.group, "v1", "clusterroles", "ClusterRole", False),
        Resource(ROLES.group, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
        SERVICE_ACCOUNTS,
        Resource("apps", "v1", "deployments", "Deployment"),
        Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
        NETWORK_POLICIES,
    )
)
PLATFORM_NEEDS = (
    *_of_role(PLATFORM_ROLE, *_DEPLOY_NEEDS, level=Tone.WARN),
    *(replace(each, level=Tone.WARN) for each in INSTALL_NEEDS),
)

_LAB_ROLE = "pathways-jupyter-lab"
LAB_NEEDS: tuple[Need, ...] = (
    *_of_role(
        _LAB_ROLE,
        *(
            Need(resource, ("get", "create", "delete"), level=Tone.WARN, purpose="start and end a lab in the cluster")
            for resource in (ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SECRETS, CLAIMS)
        ),
    ),
    Need(JOBS, ("get", "create", "delete"), level=Tone.WARN, purpose="start and end a lab in the cluster"),
    Need(PODS, ("list", "watch"), level=Tone.WARN, purpose="follow the pod of a lab"),
    Need(PODS, ("create", "get"), "portforward", level=Tone.WARN, purpose="open a lab in the browser"),
)
"""Of the user of ``pathways-jupyter lab``, besides the rules of the Role that the lab gets."""

_OF_USERS = {need.resource for need in NEEDS}
BY_ROLE: Mapping[str, tuple[Need, ...]] = {
    NEEDS[0].role: NEEDS,
    IN_CLUSTER_ROLE: IN_CLUSTER_NEEDS,
    # Who starts a lab is a user too.
    _LAB_ROLE: tuple(need for need in LAB_NEEDS if need.resource not in _OF_USERS),
    "pathways-jupyter-hosts": (
        Need(PODS, ("get", "create"), "exec", purpose="run commands on hosts"),
        Need(PODS, ("list",), purpose="find the pods that are the hosts"),
        Need(JOBSETS, ("get", "list"), purpose="find their service"),
    ),
    QUEUE_NEEDS[0].role: QUEUE_NEEDS,
    JOB_NEEDS[0].role: JOB_NEEDS,
    FAULT_NEEDS[0].role: FAULT_NEEDS,
    PLATFORM_ROLE: _DEPLOY_NEEDS,
    _INSTALL: INSTALL_NEEDS,
}
"""The permissions of each Role, by its name."""


def manifests(name: str) -> Iterator[dict[str, Any]]:
    """Yield the Role `name`, and a ClusterRole of the same name for what belongs to no namespace."""
    # The operator is installed into a namespace that is made with it.
    everywhere = [need for need in BY_ROLE[name] if name == _INSTALL or not need.resource.namespaced]
    for kind, needs in (
        (ROLES.kind, [need for need in BY_ROLE[name] if need not in everywhere]),
        (f"Cluster{ROLES.kind}", everywhere),
    ):
        if needs:
            yield {
                "apiVersion": ROLES.api_version,
                "kind": kind,
                "metadata": {"name": name},
                "rules": rules(needs),
            }


def rules(needs: Iterable[Need]) -> list[Object]:
    """Return the rules that grant `needs`."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for need in needs:
        verbs.setdefault((need.resource.group, str(need)), []).extend(need.verbs)
    return [{"apiGroups": [group], "resources": [name], "verbs": each} for (group, name), each in verbs.items()]


async def check(client: Client, namespace: str, need: Need) -> Finding:
    """Check that these credentials have a permission; `namespace` does not matter for what belongs to none."""
    name = f"permission {need}"
    within = namespace if need.resource.namespaced else ""
    try:
        asking = (
            objects.allowed(client, verb, need.resource, namespace=within, subresource=need.subresource)
            for verb in need.verbs
        )
        answers = await asyncio.gather(*asking)
    except PathwaysError as error:
        return Finding(name, Tone.WARN, f"Cannot be checked: {error}", error.hint)
    missing = [verb for verb, answer in zip(need.verbs, answers, strict=True) if not answer]
    if not missing:
        return Finding(name, Tone.OK, ", ".join(need.verbs))
    where = f" in namespace {within}" if within else ""
    message = f"Not allowed to {', '.join(missing)} {need}{where}, which is needed to {need.purpose}."
    return Finding(name, need.level, message, advise(need.role, within))


def advise(role: str, namespace: str) -> str:
    """Return how an administrator grants a Role; for an empty `namespace`, the ClusterRole of the same name."""
    kind, where = ("rolebinding", f" -n {namespace}") if namespace else ("clusterrolebinding", "")
    flag = "--role" if namespace else "--clusterrole"
    return (
        f"Ask a cluster administrator for {role}: pathways-jupyter manifests roles {role} | kubectl apply{where} -f -, "
        f"and then kubectl create {kind} NAME {flag}={role} --user=USER{where}."
    )
