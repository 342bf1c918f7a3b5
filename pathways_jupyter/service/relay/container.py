"""The relay's container in the proxy's pod. The program travels in the pod's spec, so it needs no image of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "pathways-relay"
DEFAULT_IMAGE = "python:3.13-slim"

_MODULES = ("wire", "replay", "stream", "sockets", "link", "program")
_PACKAGE = __name__.rpartition(".")[0]
# Registers each module under its own name, so that the next ones find it; their packages are not needed.
_LOADER = f"""
import os, sys, types
for name in {_MODULES!r}:
    module = sys.modules["{_PACKAGE}." + name] = types.ModuleType("{_PACKAGE}." + name)
    exec(compile(os.environ.pop("PATHWAYS_RELAY_" + name.upper()), name + ".py", "exec"), vars(module))
sys.exit(module.main())
"""


@dataclass(frozen=True)
class RelaySpec:
    """A relay beside a proxy.

    Attributes:
      secret_sha256: The hash of the session's secret, in hexadecimal; the secret itself stays with the supervisor.
      image: An image with Python 3.9 or later as ``python3``.
      keep: Seconds for which the proxy's connections are kept without the supervisor.
    """

    secret_sha256: str
    image: str = ""
    keep: float = 7200.0


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
        "PATHWAYS_RELAY_SECRET_SHA256": spec.secret_sha256,
        "PATHWAYS_RELAY_PORT": str(port_of(proxy_port)),
        "PATHWAYS_RELAY_TARGET": str(proxy_port),
        "PATHWAYS_RELAY_ALIVE_PORT": str(alive_port_of(proxy_port)),
        "PATHWAYS_RELAY_KEEP_SECONDS": f"{spec.keep:g}",
        **{f"PATHWAYS_RELAY_{name.upper()}": _source(name) for name in _MODULES},
    }
    return {
        "name": NAME,
        "image": spec.image or DEFAULT_IMAGE,
        "restartPolicy": "Always",
        # Isolated, and without the site packages: the standard library is all that it uses.
        "command": ["python3", "-I", "-S", "-c", _LOADER],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _source(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
