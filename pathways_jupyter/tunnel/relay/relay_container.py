"""The relay's container in the proxy's pod. The program travels in the pod's spec, so it needs no image of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base import packages
from pathways_jupyter.kube import objects

NAME = "pathways-relay"
DEFAULT_IMAGE = "mirror.gcr.io/library/python:3.13-slim"
"""From Google's public mirror of Docker Hub, which private GKE nodes reach as well."""

MODULES = ("wire", "stream", "sockets", "proxy_stream", "main")
PACKAGE = __name__.rpartition(".")[0]
# Settings that glibc reads at the start. By default it returns the freed buffer of a read to the system, and gets the
# next one from there: a third of what the relay does for a small message.
_KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(16 * 1024**2), "MALLOC_MMAP_THRESHOLD_": str(8 * 1024**2)}
_PROGRAM = f"""{packages.LOADER}
import os
sources = [(name, os.environ.pop("PATHWAYS_RELAY_" + name.upper())) for name in {MODULES!r}]
sys.exit(load("{PACKAGE}", sources).main())
"""


@dataclass(frozen=True)
class RelaySpec:
    """A relay beside a proxy.

    Attributes:
      secret_sha256: The hash of the session's secret, in hexadecimal; the secret itself stays with the supervisor.
      image: An image with Python 3.9 or later as ``python3``.
      keep: Seconds for which the proxy's connections are kept without the supervisor.
      secret_of: Name and key of a Secret with that hash, for a pod whose manifest is made before its secret is known.
      ends: Whether the proxy is not needed any more when no one has come for that long.
    """

    secret_sha256: str = ""
    image: str = ""
    keep: float = 7200.0
    secret_of: tuple[str, str] = ("", "")
    ends: bool = True


def port_of(proxy: int) -> int:
    """Return the port of the relay beside a proxy on this port; below it, where no service's node ports are."""
    return proxy - 1000


def alive_port_of(proxy: int) -> int:
    """Return the port on which the relay beside a proxy on this port shows that the proxy is still needed."""
    return proxy - 2000


def liveness_probe(proxy_port: int) -> dict[str, Any]:
    """Return the liveness probe of the *proxy's* container.

    Nothing else lets the end of a sidecar end a pod without a service account: Kubernetes restarts a relay that exits,
    and would keep the pod running if it were a normal container. So the relay stops listening on that port when no one
    has come for too long, and the kubelet ends the proxy, which is not restarted: with it ends the pod, and the Job.
    """
    return {
        # At the pod's address, which all of its containers share.
        "tcpSocket": {"port": alive_port_of(proxy_port)},
        "initialDelaySeconds": 10,
        "periodSeconds": 5,
        "timeoutSeconds": 3,
        # A relay that was killed listens again long before that.
        "failureThreshold": 3,
    }


def container(spec: RelaySpec, proxy_port: int) -> dict[str, Any]:
    """Return the container of a relay.

    It belongs to the init containers: with ``restartPolicy: Always`` it runs beside the proxy, and does not keep the
    pod running once the proxy has ended.
    """
    variables = {
        "PATHWAYS_RELAY_PORT": str(port_of(proxy_port)),
        "PATHWAYS_RELAY_TARGET": str(proxy_port),
        "PATHWAYS_RELAY_ALIVE_PORT": str(alive_port_of(proxy_port) if spec.ends else 0),
        "PATHWAYS_RELAY_KEEP_SECONDS": f"{spec.keep:g}",
        **_KEEP_FREED_MEMORY,
        **{f"PATHWAYS_RELAY_{name.upper()}": text for name, text in packages.sources(PACKAGE, MODULES)},
    }
    name, key = spec.secret_of
    known = {"valueFrom": {"secretKeyRef": {"name": name, "key": key}}} if name else {"value": spec.secret_sha256}
    return {
        "name": NAME,
        "image": spec.image or DEFAULT_IMAGE,
        "restartPolicy": "Always",
        # Isolated, and without the site packages: the standard library is all that it uses.
        "command": ["python3", "-I", "-S", "-c", _PROGRAM],
        "env": [
            {"name": "PATHWAYS_RELAY_SECRET_SHA256", **known},
            *({"name": name, "value": value} for name, value in variables.items()),
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": objects.restricted(runAsNonRoot=True, runAsUser=1000, runAsGroup=1000),
    }
