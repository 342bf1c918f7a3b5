"""The manifests that install the operator: the API's definition, its account with the verbs it needs, its Deployment.

The embedded cluster creates the same objects, so that its operator has exactly the permissions of a real one.
"""

from __future__ import annotations

from typing import Any

from pathways_jupyter.service import names
from pathways_jupyter.service.pathwaysjob import definition, fields

Manifest = dict[str, Any]

NAME = "pathways-operator"
NAMESPACE = "pathways-system"
COMMAND = ("pathways-jupyter", "operator", "run")
_LABELS = {"app": NAME, names.MANAGED_BY_LABEL: names.MANAGED_BY}


def manifests(image: str, *, namespace: str = NAMESPACE, replicas: int = 1, metrics_port: int = 0) -> list[Manifest]:
    """Return everything to apply, in order.

    Args:
      image: An image with this package installed.
      replicas: Operators; one of them leads, the others wait.
      metrics_port: Serve Prometheus metrics on this port of the pod; 0 for none.
    """
    return [
        definition.definition(),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        *permissions(namespace),
        _deployment(image, namespace, replicas, metrics_port),
    ]


def permissions(namespace: str = NAMESPACE) -> list[Manifest]:
    """Return the service account, its role and their binding."""
    account = {"name": NAME, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**account, "labels": _LABELS}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NAME, "labels": _LABELS},
            "rules": [
                # Sweeping: find and delete proxies whose lease has expired.
                _rule("batch", "jobs", "list", "watch", "delete"),
                # Sweeping, and the election of a leader.
                _rule("coordination.k8s.io", "leases", "get", "list", "watch", "create", "update", "patch", "delete"),
                # PathwaysJobs: read them, and write their status.
                _rule(fields.GROUP, fields.PLURAL, "list", "watch"),
                _rule(fields.GROUP, f"{fields.PLURAL}/status", "patch"),
                # Some API servers require this verb for making a job the blocking owner of a JobSet.
                _rule(fields.GROUP, f"{fields.PLURAL}/finalizers", "update"),
                _rule(names.JOBSET_GROUP, "jobsets", "get", "list", "watch", "create"),
                _rule("", "events", "create"),
                # Sweeping the pods of proxies whose Jobs were deleted without them; noticing another controller.
                _rule("", "pods", "list", "watch", "delete"),
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME, "labels": _LABELS},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", **account}],
        },
    ]


def pod(image: str) -> Manifest:
    """Return the metadata and the spec of the operator's pod."""
    container: Manifest = {
        "name": "operator",
        "image": image,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "metadata": {"labels": dict(_LABELS)},
        "spec": {"serviceAccountName": NAME, "terminationGracePeriodSeconds": 5, "containers": [container]},
    }


def _deployment(image: str, namespace: str, replicas: int, metrics_port: int) -> Manifest:
    template = pod(image)
    (container,) = template["spec"]["containers"]
    container["command"] = list(COMMAND)
    if metrics_port:
        container["args"] = [f"--metrics-port={metrics_port}"]
        container["ports"] = [{"name": "metrics", "containerPort": metrics_port, "protocol": "TCP"}]
        template["metadata"]["annotations"] = {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(metrics_port),
            "prometheus.io/path": "/metrics",
        }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": namespace, "labels": dict(_LABELS)},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": NAME}}, "template": template},
    }


def _rule(group: str, resource: str, *verbs: str) -> Manifest:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
