"""The operator's image, and the manifests that install it: its account with the verbs it needs, its Deployment.

The embedded cluster creates the same objects, so that its operator has exactly the permissions of a real one.
"""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.service import image_build, names
from pathways_jupyter.service.pathwaysjob import definition

Manifest = dict[str, Any]

NAME = "pathways-operator"
NAMESPACE = "pathways-system"
REPLICAS = 2
PORT = 9090
"""Port where an operator serves its metrics, and says whether it is alive and ready."""
COMMAND = ("python", "-m", "pathways_jupyter.operator.main")
USER = 65532
"""The user that it runs as; none of the base image's."""
_PACKAGE = "pathways_jupyter"
_IMPORTED = frozenset(
    [
        "aiohttp",
        "google-auth",
        "jupyter-core",
        "kubernetes",
        "packaging",
        "prometheus-client",
        "pyyaml",
        "requests",
        "yarl",
    ]
)
"""Requirements of this package that the operator imports."""
_LABELS = {"app": NAME, names.MANAGED_BY_LABEL: names.MANAGED_BY}


def manifests(
    image: str, *, namespace: str = NAMESPACE, replicas: int = REPLICAS, service_monitor: bool = False
) -> list[Manifest]:
    """Return everything to apply but the definition of PathwaysJob, in order.

    Args:
      image: An image with this package installed.
      replicas: Operators; one of them leads, the others wait.
      service_monitor: Whether the Prometheus operator is to find the metrics.
    """
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}},
        *permissions(namespace),
        _deployment(image, namespace, replicas),
        _made("policy/v1", "PodDisruptionBudget", namespace, maxUnavailable=1, selector={"matchLabels": {"app": NAME}}),
        _made(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            namespace,
            podSelector={"matchLabels": {"app": NAME}},
            policyTypes=["Ingress"],
            ingress=[{"ports": [{"protocol": "TCP", "port": PORT}]}],
        ),
    ]
    if service_monitor:
        selector = {"matchLabels": {"app": NAME}}
        made.append(
            _made("v1", "Service", namespace, selector={"app": NAME}, ports=[{"name": "metrics", "port": PORT}])
        )
        # The namespace and the service of a series are those of its session, not those of the operator.
        endpoints = [{"port": "metrics", "honorLabels": True}]
        made.append(
            _made("monitoring.coreos.com/v1", "ServiceMonitor", namespace, selector=selector, endpoints=endpoints)
        )
    return made


def _made(version: str, kind: str, namespace: str, **spec: Any) -> Manifest:
    metadata = {"name": NAME, "namespace": namespace, "labels": dict(_LABELS)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def permissions(namespace: str = NAMESPACE) -> list[Manifest]:
    """Return the service account, its role and the binding."""
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
                _rule(definition.GROUP, definition.PLURAL, "list", "watch"),
                _rule(definition.GROUP, f"{definition.PLURAL}/status", "patch"),
                # Some API servers require this verb for making a job the blocking owner of a JobSet.
                _rule(definition.GROUP, f"{definition.PLURAL}/finalizers", "update"),
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
    """Return the metadata and the spec of the operator's pod; it listens nowhere."""
    container: Manifest = {
        "name": "operator",
        "image": image,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": USER,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "metadata": {"labels": dict(_LABELS)},
        "spec": {"serviceAccountName": NAME, "terminationGracePeriodSeconds": 5, "containers": [container]},
    }


def _deployment(image: str, namespace: str, replicas: int) -> Manifest:
    template = pod(image)
    template["spec"]["containers"][0] |= {
        "command": list(COMMAND),
        "args": [f"--metrics-port={PORT}"],
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": PORT}, "periodSeconds": 20},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": PORT}, "periodSeconds": 5},
    }
    template["metadata"]["annotations"] = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(PORT),
        "prometheus.io/path": "/metrics",
    }
    # Replicas on one node would go with it.
    template["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": NAME}},
        }
    ]
    selector = {"matchLabels": {"app": NAME}}
    return _made("apps/v1", "Deployment", namespace, replicas=replicas, selector=selector, template=template)


def _rule(group: str, resource: str, *verbs: str) -> Manifest:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def image(base: str, folder: Path, *, push: str = "", wheel: Path | None = None) -> image_build.Plan:
    """Return how to build the operator's image; write nothing.

    It has Python, this package, and of what that needs only the packages that an operator imports: JAX and Jupyter,
    most of an installation, are left out.

    Args:
      base: An image with Python 3.11 or later.
      folder: Where the build context goes.
      push: Repository to push to; empty keeps the image here.
      wheel: The package's own wheel; by default its release of the version that is installed here.

    Raises:
      ConfigError: The wheel cannot be read, or is none.
    """
    version = metadata.version(_PACKAGE)
    files: dict[str, str | bytes] = {"requirements.txt": "".join(f"{each}\n" for each in requirements())}
    source = f"{_PACKAGE}=={version}"
    if wheel is not None:
        try:
            files[wheel.name] = wheel.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{wheel} cannot be read: {error.strerror}.", hint="Build one: pip wheel --no-deps ."
            ) from error
        _, separator, rest = wheel.name.partition("-")
        if not separator or not wheel.name.endswith(".whl"):
            raise ConfigError(f"{wheel} is not named as a wheel is.", hint="Build one: pip wheel --no-deps .")
        source, version = f"/build/{wheel.name}", rest.partition("-")[0]
    files["Dockerfile"] = "\n".join(
        (
            f"FROM {base}",
            "COPY . /build",
            "RUN pip install --no-cache-dir --requirement /build/requirements.txt \\",
            f" && pip install --no-cache-dir --no-deps {source}",
            f"USER {USER}:{USER}",
            f"ENTRYPOINT {json.dumps(COMMAND)}",
            "",
        )
    )
    name = f"{NAME}:{version}"
    return image_build.plan(f"{push.rstrip('/')}/{name}" if push else name, base, folder, files, push=bool(push))


def requirements() -> list[str]:
    """Return the requirements of this package that an operator needs, with their versions."""
    listed = metadata.requires(_PACKAGE) or []
    return [each for each in listed if ";" not in each and re.split(r"[^\w.-]", each)[0].lower() in _IMPORTED]
