"""A loopback port of this machine that leads to a lab, and outlives the lab's pods.

Each connection of the browser is forwarded on its own, so a connection that breaks, e.g. because the API server
restarts, is simply made again by the page. What has to be followed is the pod: the cluster replaces it when its node is
lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from pathways_jupyter.base.errors import ClusterError, ServiceError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, PODS
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.service.lab import lifecycle, manifests
from pathways_jupyter.service.podstate import State, pod_state
from pathways_jupyter.tunnel import portforward
from pathways_jupyter.tunnel.portforward import Forward, PortRefused, Target

ANSWER_SECONDS = 120.0
"""How long JupyterLab may take from the start of its container to its first answer."""


@contextlib.asynccontextmanager
async def forwarded(client: Client, namespace: str, name: str, *, port: int = 0) -> AsyncIterator[Forward]:
    """Listen inside the block, which begins once JupyterLab takes connections.

    Args:
      port: The local port; 0 for any free one.

    Raises:
      ServiceError: There is no such lab, it has no pod that runs, or the server in it does not answer.
      ClusterError: The port is in use, a permission is missing, or the server could not be reached.
    """
    found = await lifecycle.current_pod(client, namespace, name)
    if found is None:
        raise ServiceError(f"Lab {name} has no pod.", hint="Start it: pathways-jupyter lab up.")
    pod = found["metadata"]["name"]
    forward = await portforward.listen(Target(client, namespace, pod, manifests.PORT), port=port)
    try:
        # A server speaks only when spoken to, so that this takes a moment even where it listens already.
        await forward.prepare(patience=ANSWER_SECONDS)
        yield forward
    except PortRefused as error:
        raise ServiceError(
            f"JupyterLab in pod {pod} does not listen after {ANSWER_SECONDS:.0f} s.",
            hint=f"See its log: kubectl logs {pod} -n {namespace}.",
        ) from error
    finally:
        await forward.close()


async def follow(forward: Forward, name: str, progress: Callable[[str], None]) -> None:
    """Lead `forward` to the lab's present pod; return when the lab is gone.

    Args:
      progress: Called with what changes, in words.

    Raises:
      ApiError: Watching pods is forbidden.
    """
    client, namespace = forward.target.client, forward.target.namespace
    changes = watch(client, PODS, namespace=namespace, labels=f"{manifests.LAB_LABEL}={name}")
    async with contextlib.aclosing(changes):
        async for change in changes:
            if change.type is ChangeType.LOST:
                progress("The connection to the cluster was lost; trying again.")
                continue
            if change.type in {ChangeType.ADDED, ChangeType.MODIFIED}:
                pod = change.object["metadata"]["name"]
                if pod != forward.target.pod and pod_state(change.object)[0] is State.READY:
                    progress(f"The lab runs in another pod now: {pod}.")
                    forward.target = replace(forward.target, pod=pod)
            # Whether it ends is in its Job; unknown while the API server does not answer, but then the watch is lost,
            # and its next SYNCED leads here again.
            with contextlib.suppress(ClusterError):
                job = await objects.find(client, JOBS, name, namespace=namespace)
                if job is None or objects.true_condition(job, "Complete", "Failed"):
                    return
