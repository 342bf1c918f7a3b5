"""The data path of a notebook that runs in the cluster: straight to the proxy's pod, without a tunnel.

The tunnel's bytes are inside the API server's TLS. On the pod network they are as safe as the channel that carries
them, and the proxy runs whatever code its clients send. So a direct path is taken only where the channel protects it:
with ALTS, which works between machines of Google Cloud, and through the private unix sockets of an embedded cluster. In
both cases a NetworkPolicy of the session lets in this pod alone.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ApiError, SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import NETWORK_POLICIES, PODS, Object
from pathways_jupyter.service import names
from pathways_jupyter.service.permissions import IN_CLUSTER_ROLE
from pathways_jupyter.session.registry import ALTS, INSECURE

PRODUCT_NAME = Path("/sys/class/dmi/id/product_name")
"""gRPC takes a machine for one of Google Cloud, and so for one with ALTS, by the content of this file."""

_GOOGLE = ("Google", "Google Compute Engine")
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_POD_NAME, _POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
_ATTEMPT_SECONDS = 5.0
_SILENT_ATTEMPTS = 3
"""After so many attempts without any answer, the port counts as blocked; one that is refused may still open."""
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class DataPath:
    """The route of JAX to the proxy.

    Attributes:
      credentials: Those of a direct connection; empty for the tunnel.
      reason: Why it is the tunnel although this process runs in the cluster, as a sentence; may be empty.
    """

    credentials: str = ""
    reason: str = ""

    @property
    def is_direct(self) -> bool:
        """Return whether JAX connects to the proxy's pod itself."""
        return bool(self.credentials)


async def plan(client: Client, config: ConnectConfig, namespace: str) -> tuple[Object | None, DataPath]:
    """Return the pod that this process runs in, if it is in the cluster of `client`, and the data path of a session.

    Args:
      namespace: That of the proxy.

    Raises:
      ClusterError: The server could not be reached.
    """
    try:
        pod = await _own_pod(client)
    except ApiError as error:
        # On a hub the account's Role may be in the service's namespace only.
        if error.status != 403:
            raise
        return None, DataPath(reason="" if config.tunnel else f"No direct connection: {error}")
    route = choose(config, pod)
    if route.is_direct and not await objects.allowed(client, "create", NETWORK_POLICIES, namespace=namespace):
        route = DataPath(
            reason=f"This account is not allowed to create networkpolicies in namespace {namespace}, "
            f"which a direct connection needs (Role {IN_CLUSTER_ROLE})."
        )
    return pod, route


async def _own_pod(client: Client) -> Object | None:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = urlsplit(client.cluster.server)
    if not host or (server.hostname, str(server.port or 443)) != (host.lower(), port):
        return None
    # A pod's token says which pod it belongs to (Kubernetes 1.28 and later answer that question).
    try:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await client.request("POST", _REVIEWS, body=review, repeat=True)
    except ApiError:
        return None
    info = (answer.get("status") or {}).get("userInfo") or {}
    extra = info.get("extra") or {}
    (name, *_), (uid, *_) = extra.get(_POD_NAME) or [""], extra.get(_POD_UID) or [""]
    # Older clusters do not say which pod a token belongs to; then it is not known that there is one.
    account = str(info.get("username") or "").split(":")
    if not name or account[:2] != ["system", "serviceaccount"]:
        return None
    pod = await objects.find(client, PODS, name, namespace=account[2])
    return pod if pod is not None and pod["metadata"]["uid"] == uid else None


def choose(config: ConnectConfig, pod: Object | None, *, product_name: Path = PRODUCT_NAME) -> DataPath:
    """Choose the data path of a session.

    Args:
      pod: The pod that this process runs in; None outside of the cluster.
    """
    if config.tunnel or pod is None:
        return DataPath()
    if not pod["metadata"].get("labels"):
        return DataPath(reason="This notebook's pod has no labels, so no NetworkPolicy can let in this pod alone.")
    # Before ALTS is looked for: an embedded cluster may run on a machine of Google Cloud.
    if sockets_of(pod) is not None:
        return DataPath(INSECURE)
    try:
        product = product_name.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        product = ""
    if product in _GOOGLE:
        return DataPath(ALTS)
    return DataPath(reason="A direct connection would not be encrypted here, because ALTS needs Google Cloud.")


def address(pod: Object, port: int) -> str:
    """Return the address of a port of a proxy's pod, as a target of gRPC without its scheme.

    Raises:
      SessionError: The pod has no address, or its sockets are not private.
    """
    if (sockets := sockets_of(pod)) is not None:
        try:
            status = sockets.stat()
        except OSError:
            status = None
        # The proxy runs what its clients send.
        if status is None or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise SessionError(
                f"The proxy's sockets in {sockets} are not private to this user.", hint=advice("Connect with {tunnel}.")
            )
        return f"unix:{sockets / str(port)}"
    ip = str((pod.get("status") or {}).get("podIP") or "")
    if not ip:
        raise SessionError(
            f"Pod {pod['metadata']['name']} has no address.", hint=advice("Connect again, or with {tunnel}.")
        )
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def sockets_of(pod: Object) -> Path | None:
    """Return the directory of a pod's sockets; None except on an embedded cluster."""
    path = (pod["metadata"].get("annotations") or {}).get(names.SOCKETS_ANNOTATION)
    return Path(path) if path else None


async def until_open(where: str, *, seconds: float, on_refused: Callable[[], Awaitable[None]]) -> None:
    """Return when the proxy at `where` (see :func:`address`) takes connections.

    Args:
      seconds: How long to try.
      on_refused: Awaited whenever it has refused a connection.

    Raises:
      ConnectionRefusedError: It still refuses them after `seconds`.
      SessionError: It cannot be reached.
    """
    silent = 0
    async for _ in (attempts := Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=seconds)):
        try:
            async with asyncio.timeout(_ATTEMPT_SECONDS):
                if where.startswith("unix:"):
                    _, writer = await asyncio.open_unix_connection(where.removeprefix("unix:"))
                else:
                    host, _, port = where.rpartition(":")
                    _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            # Only a sign that the proxy listens: JAX makes its own connection.
            writer.close()
            return
        except TimeoutError:
            silent += 1
            if silent >= _SILENT_ATTEMPTS:
                raise SessionError(
                    f"The proxy at {where} does not answer on the pod network.",
                    hint=advice(
                        "A NetworkPolicy or a firewall may be in the way; {tunnel} goes through the API server."
                    ),
                ) from None
        except (ConnectionRefusedError, FileNotFoundError) as error:
            # A pod without a readiness probe is ready before its program listens.
            if attempts.is_over:
                raise ConnectionRefusedError(f"{where} refuses connections") from error
            await on_refused()
        except OSError as error:
            raise SessionError(
                f"The proxy at {where} cannot be reached on the pod network: {error.strerror or error}.",
                hint=advice("{tunnel} goes through the API server instead."),
            ) from error
