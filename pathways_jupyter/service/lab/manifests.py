"""The objects of a lab, as data.

Its programs listen on the pod's loopback interface, which a port-forward reaches and the pod network does not: nothing
but the Kubernetes API lets anyone in, and after it a secret: Jupyter's own token, and the relay's. The pod's first
process is the host of kernels (:mod:`pathways_jupyter.kernel.lab_host`), which starts JupyterLab as well. It runs as a
Job, so that the cluster replaces its pod when a node is lost, and as a service account with the documented Role and no
more.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
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
from pathways_jupyter.tunnel.relay import relay_container as relay

LAB_LABEL = "pathways-jupyter/lab"
CONTAINER = "lab"
PORT = 8888
HOME = "/home/jovyan"
TOKEN_KEY = "token"
KERNELS_PORT = 29100
"""Of the host of kernels; the relay beside it has another one."""
HOST = "pathways_jupyter.kernel.lab_host"
"""The module that is the pod's first process."""
KEEP_SECONDS = 7200.0
"""Time for which the streams of a machine that cannot be reached are kept, and its kernels with them."""

_RELAY_KEY = "relay-sha256"

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
    """Return the Secret with Jupyter's token, from which the relay's secret follows, and the hash of that."""
    values = {TOKEN_KEY: token, _RELAY_KEY: sha256(relay_secret(token)).hexdigest()}
    return _object(
        SECRETS,
        spec,
        type="Opaque",
        data={key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    )


def relay_secret(token: str) -> bytes:
    """Return the secret of the relay in the lab with this token, 32 bytes."""
    return sha256(f"relay {token}".encode()).digest()


def token_of(found: Object) -> str:
    """Return Jupyter's token from the lab's Secret."""
    return base64.b64decode(found["data"][TOKEN_KEY]).decode()


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
    streams = relay.RelaySpec(image=spec.image, keep=KEEP_SECONDS, secret_of=(spec.name, _RELAY_KEY), ends=False)
    return {
        "restartPolicy": "OnFailure",
        "serviceAccountName": spec.name,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        # The group makes the volume writable for a user who is not root.
        "securityContext": {"runAsNonRoot": True, "runAsUser": _USER_ID, "fsGroup": _USER_ID},
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": spec.name}}],
        "initContainers": [relay.container(streams, KERNELS_PORT)],
        "containers": [
            {
                "name": CONTAINER,
                "image": spec.image,
                # Arguments and no command: the image's own entry point starts them, e.g. below an init process.
                "args": [
                    *("python3", "-m", HOST, str(KERNELS_PORT)),
                    *("jupyter", "lab", "--ip=127.0.0.1", f"--port={PORT}", "--no-browser"),
                ],
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
