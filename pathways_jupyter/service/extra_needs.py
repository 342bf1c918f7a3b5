"""The permissions of those who do more than connect: inject faults, deploy services, install the operator."""

from __future__ import annotations

from dataclasses import replace

from pathways_jupyter.kube.objects import JOBS, JOBSETS, NAMESPACES, NODES, PODS, Resource
from pathways_jupyter.service import deploychecks
from pathways_jupyter.service.checks import Level, Need
from pathways_jupyter.service.lab.manifests import SERVICE_ACCOUNTS

_FAULT_ROLE = "pathways-jupyter-faults"

# Connecting needs none of these, so the doctor only warns.
FAULT_NEEDS: tuple[Need, ...] = (
    Need(JOBSETS, ("get",), level=Level.WARN, purpose="find the workers of a slice", role=_FAULT_ROLE),
    Need(
        PODS, ("list", "delete"), level=Level.WARN, purpose="find workers, and keep one down (--for)", role=_FAULT_ROLE
    ),
    Need(PODS, ("get", "create"), "exec", level=Level.WARN, purpose="kill a worker from inside", role=_FAULT_ROLE),
    Need(PODS, ("create",), "eviction", level=Level.WARN, purpose="drain a node", role=_FAULT_ROLE),
    Need(NODES, ("get", "list", "patch"), level=Level.WARN, purpose="cordon and uncordon nodes", role=_FAULT_ROLE),
)


_RBAC = "rbac.authorization.k8s.io"
_APPLY = ("create", "get", "patch")
"""The verbs of `kubectl apply --server-side`."""
_INSTALL = "install the operator"

DEPLOY_NEEDS: tuple[Need, ...] = (
    *deploychecks.NEEDS,
    Need(JOBS, ("list",), level=Level.WARN, purpose="see who uses a service before it is deleted"),
    Need(NODES, ("list",), level=Level.WARN, purpose="check the node pools before a service is deployed"),
)
INSTALL_NEEDS: tuple[Need, ...] = tuple(
    Need(resource, _APPLY, level=Level.WARN, purpose=_INSTALL)
    for resource in (
        Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False),
        NAMESPACES,
        Resource(_RBAC, "v1", "clusterroles", "ClusterRole", False),
        Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
        SERVICE_ACCOUNTS,
        Resource("apps", "v1", "deployments", "Deployment"),
    )
)
# Connecting needs none of these, so the doctor only warns.
PLATFORM_NEEDS = tuple(
    replace(each, role=deploychecks.ROLE, level=Level.WARN) for each in (*DEPLOY_NEEDS, *INSTALL_NEEDS)
)
