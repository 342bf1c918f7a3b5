"""The way from a browser on this machine to a lab: a loopback port that outlives the lab's pods.

Each connection of the browser is forwarded on its own, so a connection that breaks, e.g. because the API server
restarts, is simply made again by the page. What has to be followed is the pod: the cluster replaces it when its node is
lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

import portpicker

from pathways_jupyter.errors import ClusterError, ServiceError
from pathways_jupyter.kube import portforward
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.kube.portforward import Forward, PortRefused, Target
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.service.lab import lifecycle, manifests
from pathways_jupyter.service.podstate import State, pod_state

ANSWER_SECONDS = 120.0
"""How long JupyterLab may take from the start of its container to its first answer."""
_PAUSE_SECONDS = 1.0


class LabForward:
    """Forwards a port of this machine's loopback interface to a lab; use it as an async context manager.

    Args:
      port: The local port; 0 for any free one.
      progress: Called with what changes, in words.

    Attributes:
      port: The local port.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        *,
        port: int = 0,
        progress: Callable[[str], None] = lambda words: None,
    ) -> None:
        self.port = port
        self._client = client
        self._namespace = namespace
        self._name = name
        self._progress = progress
        self._forward: Forward | None = None

    async def __aenter__(self) -> Self:
        """Listen, and return once JupyterLab takes connections.

        Raises:
          ServiceError: There is no such lab, it has no pod that runs, or the server in it does not answer.
          ClusterError: The port is in use, a permission is missing, or the server could not be reached.
        """
        pod = await lifecycle.current_pod(self._client, self._namespace, self._name)
        if pod is None:
            raise ServiceError(f"Lab {self._name} has no pod.", hint="Start it: pathways-jupyter lab up.")
        self.port = self.port or portpicker.pick_unused_port()
        target = Target(self._client, self._namespace, pod["metadata"]["name"], manifests.PORT)
        self._forward = await portforward.listen(target, port=self.port)
        try:
            # A server speaks only when spoken to, so that this takes a moment even where it listens already.
            await self._forward.prepare(patience=ANSWER_SECONDS)
        except PortRefused as error:
            await self._forward.close()
            raise ServiceError(
                f"JupyterLab in pod {pod['metadata']['name']} does not listen after {ANSWER_SECONDS:.0f} s.",
                hint=f"See its log: kubectl logs {pod['metadata']['name']} -n {self._namespace}.",
            ) from error
        except BaseException:
            await self._forward.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._forward is not None:
            await self._forward.close()

    async def supervise(self) -> None:
        """Follow the lab from pod to pod; return when the lab is gone.

        Raises:
          ApiError: Watching pods is forbidden.
        """
        assert self._forward is not None
        labels = f"{manifests.LAB_LABEL}={self._name}"
        changes = watch(self._client, PODS, namespace=self._namespace, labels=labels)
        async with contextlib.aclosing(changes):
            async for change in changes:
                if change.type is ChangeType.LOST:
                    self._progress("The connection to the cluster was lost; trying again.")
                elif change.type in {ChangeType.ADDED, ChangeType.MODIFIED}:
                    self._follow(change.object["metadata"]["name"], pod_state(change.object)[0])
                # The last change of a lab that ends is one of these; what it means is in its Job.
                if change.type is not ChangeType.LOST and await self._is_over():
                    return

    def _follow(self, pod: str, state: State) -> None:
        assert self._forward is not None
        if state is State.READY and pod != self._forward.target.pod:
            self._progress(f"The lab runs in another pod now: {pod}.")
            self._forward.target = replace(self._forward.target, pod=pod)

    async def _is_over(self) -> bool:
        try:
            lab = await lifecycle.find(self._client, self._namespace, self._name)
        except ClusterError:
            # Unknown; the next change of a pod leads here again.
            await asyncio.sleep(_PAUSE_SECONDS)
            return False
        return lab is None or (lab.state is State.DOWN and lab.reason == lifecycle.SHUT_DOWN)
