"""The Roles of those who use the package, made from the permissions that the doctor checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pathways_jupyter.kube.objects import JOBSETS, NODES, PODS
from pathways_jupyter.service import deploychecks
from pathways_jupyter.service.checks import IN_CLUSTER_NEEDS, IN_CLUSTER_ROLE, NEEDS, QUEUE_NEEDS, Need
from pathways_jupyter.service.doctor import DEPLOY_NEEDS, FAULT_NEEDS, INSTALL_NEEDS
from pathways_jupyter.service.lab.lifecycle import LAB_NEEDS
from pathways_jupyter.service.lab.manifests import ROLES as ROLE
from pathways_jupyter.service.lab.manifests import role_rules

_INSTALL = "pathways-operator-install"
_OF_USERS = {need.resource for need in NEEDS}
ROLES: Mapping[str, tuple[Need, ...]] = {
    "pathways-jupyter-user": NEEDS,
    IN_CLUSTER_ROLE: IN_CLUSTER_NEEDS,
    # Who starts a lab is a user too.
    "pathways-jupyter-lab": tuple(need for need in LAB_NEEDS if need.resource not in _OF_USERS),
    "pathways-jupyter-hosts": (
        Need(PODS, ("get", "create"), "exec", purpose="run commands on hosts"),
        Need(PODS, ("list",), purpose="find the pods that are the hosts"),
        Need(JOBSETS, ("get", "list"), purpose="find their service"),
    ),
    QUEUE_NEEDS[0].role: QUEUE_NEEDS,
    "pathways-jupyter-maintenance": (
        Need(NODES, ("list", "watch"), purpose="save arrays before a node is taken away"),
    ),
    "pathways-jupyter-faults": FAULT_NEEDS,
    deploychecks.ROLE: DEPLOY_NEEDS,
    _INSTALL: INSTALL_NEEDS,
}
"""The permissions of each Role, by its name."""


def manifests(name: str) -> Iterator[dict[str, Any]]:
    """Yield the Role `name`, and a ClusterRole of the same name for what belongs to no namespace."""
    # The operator is installed into a namespace that is made with it.
    everywhere = [need for need in ROLES[name] if name == _INSTALL or not need.resource.namespaced]
    for kind, needs in (
        (ROLE.kind, [need for need in ROLES[name] if need not in everywhere]),
        (f"Cluster{ROLE.kind}", everywhere),
    ):
        if needs:
            yield {
                "apiVersion": ROLE.api_version,
                "kind": kind,
                "metadata": {"name": name},
                "rules": role_rules(needs),
            }
