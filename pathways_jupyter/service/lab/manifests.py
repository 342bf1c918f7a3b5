"""The objects of a lab, as data.

The server listens on its pod's loopback interface, which a port-forward reaches and the pod network does not: nothing
but the Kubernetes API lets anyone in, and after it Jupyter's own token. It runs as a Job, so that the cluster replaces
its pod when a node is lost, and as a service account with the documented Role and no more.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import (
    CLAIMS,
    JOBS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    Object,
    Resource,
)
from pathways_jupyter.service import names, permissions
from pathways_jupyter.service.names import MAX_JOB_NAME, label_value, name_part

LAB_LABEL = "pathways-jupyter/lab"
CONTAINER = "lab"
PORT = 8888
HOME = "/home/jovyan"
TOKEN_KEY = "token"

_PREFIX = "pathways-lab"
_LONGEST_NAME = 24
_USER_ID = 1000
_GRACE_SECONDS = 30
_RESTARTS = 1000
"""A Job gives up after a number of failures; a lab should be there until its user ends it."""


@dataclass(frozen=True)
class LabSpec:
    """A lab to start.

    Attributes:
      name: Of all its objects; see :func:`lab_name`.
      image: Runs the command that it is given, and contains JupyterLab and this package.
      cpu: As Kubernetes writes it, e.g. ``8``; request and limit.
      memory: As Kubernetes writes it, e.g. ``32G``; request and limit.
      volume: Size of the home volume, e.g. ``20Gi``.
      storage_class: Of the home volume; the cluster's default when empty.
    """

    name: str
    namespace: str
    image: str
    user: str = ""
    cpu: str = ""
    memory: str = ""
    volume: str = "10Gi"
    storage_class: str = ""

    def within(self, namespace: str) -> LabSpec:
        """Return the same lab in `namespace`."""
        return replace(self, namespace=namespace)


def lab_name(user: str, name: str = "") -> str:
    """Return the name of the objects of a user's lab.

    Args:
      name: Distinguishes several labs of one user.

    Raises:
      ConfigError: `name` cannot be part of an object's name.
    """
    if name and name_part(name, _LONGEST_NAME) != name:
        raise ConfigError(
            f"A lab cannot be called {name!r}.",
            hint=f"Use at most {_LONGEST_NAME} lower-case letters, digits and dashes.",
        )
    room = MAX_JOB_NAME - len(f"{_PREFIX}--{name}")
    return "-".join(part for part in (_PREFIX, name_part(user.partition("@")[0], room), name) if part)


def service_account(spec: LabSpec) -> Object:
    """Return the account that its notebooks use the cluster as."""
    return _object(SERVICE_ACCOUNTS, spec)


def role(spec: LabSpec, *, direct: bool) -> Object:
    """Return its Role; `direct` adds what its notebooks need to connect without the tunnel."""
    needs = (*permissions.NEEDS, *(permissions.IN_CLUSTER_NEEDS if direct else ()))
    return _object(ROLES, spec, rules=permissions.rules(needs))


def role_binding(spec: LabSpec) -> Object:
    """Return the binding of its account to its Role."""
    subject = {"kind": SERVICE_ACCOUNTS.kind, "name": spec.name, "namespace": spec.namespace}
    reference = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": spec.name}
    return _object(ROLE_BINDINGS, spec, roleRef=reference, subjects=[subject])


def secret(spec: LabSpec, token: str) -> Object:
    """Return the Secret with Jupyter's token."""
    return _object(SECRETS, spec, type="Opaque", data={TOKEN_KEY: base64.b64encode(token.encode()).decode()})


def claim(spec: LabSpec) -> Object:
    """Return the claim of its home volume."""
    claimed: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": spec.volume}}}
    if spec.storage_class:
        claimed["storageClassName"] = spec.storage_class
    return _object(CLAIMS, spec, spec=claimed)


def job(spec: LabSpec) -> Object:
    """Return the Job that runs the server."""
    return _object(
        JOBS,
        spec,
        spec={
            "backoffLimit": _RESTARTS,
            "completions": 1,
            "parallelism": 1,
            # The next pod mounts the same volume, which the previous one has to leave first.
            "podReplacementPolicy": "Failed",
            "template": {"metadata": {"labels": labels(spec)}, "spec": _pod(spec)},
        },
    )


def labels(spec: LabSpec) -> dict[str, str]:
    """Return the labels of everything that belongs to the lab."""
    values = {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        LAB_LABEL: spec.name,
        names.USER_LABEL: label_value(spec.user),
    }
    return {key: value for key, value in values.items() if value}


def _pod(spec: LabSpec) -> Object:
    amounts = {key: value for key, value in (("cpu", spec.cpu), ("memory", spec.memory)) if value}
    token = {"secretKeyRef": {"name": spec.name, "key": TOKEN_KEY}}
    return {
        "restartPolicy": "OnFailure",
        "serviceAccountName": spec.name,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        # The group makes the volume writable for a user who is not root.
        "securityContext": {"runAsNonRoot": True, "runAsUser": _USER_ID, "fsGroup": _USER_ID},
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": spec.name}}],
        "containers": [
            {
                "name": CONTAINER,
                "image": spec.image,
                # Arguments and no command: the image's own entry point starts them, e.g. below an init process.
                "args": ["jupyter", "lab", "--ip=127.0.0.1", f"--port={PORT}", "--no-browser"],
                "env": [{"name": "HOME", "value": HOME}, {"name": "JUPYTER_TOKEN", "valueFrom": token}],
                "workingDir": HOME,
                "resources": {"requests": amounts, "limits": amounts},
                "volumeMounts": [{"name": "home", "mountPath": HOME}],
                "securityContext": objects.restricted(),
            }
        ],
    }


def _object(resource: Resource, lab: LabSpec, /, **fields: Any) -> Object:
    metadata: Mapping[str, Any] = {"name": lab.name, "namespace": lab.namespace, "labels": labels(lab)}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": dict(metadata), **fields}
