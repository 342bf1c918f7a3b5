"""One stream to a lab's pod, for all that this process wants there: kernels, JupyterLab, sessions of its kernels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ClusterError, ConnectionLost
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS, SECRETS, Object
from pathways_jupyter.service.lab import manifests
from pathways_jupyter.tunnel.carrier import PodPort, PortRefused
from pathways_jupyter.tunnel.multiplexer import Multiplexer, StreamChannel
from pathways_jupyter.tunnel.outage import Outage
from pathways_jupyter.tunnel.relay import relay_container as relay
from pathways_jupyter.tunnel.resumable_stream import RelayClient, ResumableStream

CLOSE_SECONDS = 5.0
"""Longest time for the other end to learn that a stream is closed; without that it ends when the relay gives it up."""
LISTEN_SECONDS = 60.0
"""Longest time from the start of the pod's containers until their programs listen."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 0.5


class LabStream:
    """A stream to a lab; made by :meth:`open`.

    Attributes:
      cluster: Name of the lab's cluster, for people.
      pod: Name of the lab's pod.
      channels: What it carries.
      ended: Done, with the reason, when it cannot be continued.
    """

    def __init__(
        self, cluster: str, pod: str, relay_client: RelayClient, stream: ResumableStream, channels: Multiplexer
    ) -> None:
        self.cluster = cluster
        self.pod = pod
        self.channels = channels
        self._relay = relay_client
        self._stream = stream
        self._broken: asyncio.Future[ClusterError] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.create_task(self._receive())

    @classmethod
    async def open(
        cls,
        client: Client,
        namespace: str,
        name: str,
        *,
        reload: Callable[[ClusterError], Awaitable[None]],
        interrupted: Callable[[str], None] = lambda reason: None,
        restored: Callable[[float], None] = lambda seconds: None,
        take: Callable[[dict[str, Any]], None] | None = None,
        accept: Callable[[StreamChannel, dict[str, Any]], None] | None = None,
    ) -> LabStream:
        """Open a stream to the lab `name`, whose pod runs.

        Args:
          reload, interrupted, restored: See :class:`~pathways_jupyter.tunnel.outage.Outage`.
          take: Called with each message of the pod's host of kernels.
          accept: Called with each channel that it opens, and what it asks for.

        Raises:
          ClusterError: The lab has no pod, or it could not be reached.
        """
        pod, secret = await asyncio.gather(
            current_pod(client, namespace, name), objects.find(client, SECRETS, name, namespace=namespace)
        )
        if pod is None or secret is None:
            raise ClusterError(f"Lab {name} has no pod.", hint=advice("Start it: {lab_up}."))
        target = PodPort(client, namespace, pod["metadata"]["name"], relay.port_of(manifests.KERNELS_PORT))
        known = manifests.relay_secret(manifests.token_of(secret))
        relay_client = RelayClient(target, known, manifests.KEEP_SECONDS, Outage(interrupted, restored, reload))
        try:
            stream = await _opened(relay_client)
        except BaseException:
            await relay_client.close()
            raise
        channels = Multiplexer(stream.send, take=take, accept=accept)
        return cls(client.cluster.name, target.pod, relay_client, stream, channels)

    def cut(self) -> int:
        """Drop the connection, as a network does that fails; return how many there were."""
        return self._relay.cut()

    def lose(self, error: ClusterError) -> None:
        """End the stream here, because of `error`."""
        if not self._broken.done():
            self._broken.set_result(error)

    async def close(self) -> None:
        """End the stream; the pod's end of it ends as well, at once unless the line is cut."""
        # Nothing may follow the end of the stream.
        await self.channels.close()
        self._stream.close()
        await asyncio.wait({self.ended}, timeout=CLOSE_SECONDS)
        await tasks.stop(self.ended)
        await self._relay.close()

    async def _receive(self) -> ClusterError:
        async def feed(data: memoryview) -> None:
            # An error here must not be taken for a cut, after which the same bytes would come again.
            if self._broken.done():
                return
            try:
                self.channels.feed(data)
            except ClusterError as error:
                self.lose(error)
            except Exception as error:
                self.lose(ConnectionLost(f"What the lab's pod sends cannot be used: {error}"))

        delivering = asyncio.create_task(self._stream.deliver(feed))
        try:
            either: set[asyncio.Future[Any]] = {delivering, self._broken}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await tasks.stop(delivering)
        if self._broken.done():
            self._stream.close()
        error = self._broken.result() if self._broken.done() else self._stream.error
        error = error or ConnectionLost("The lab's pod has closed the stream.")
        await self.channels.close(error)
        return error


async def current_pod(client: Client, namespace: str, name: str) -> Object | None:
    """Return the newest pod of a lab that is not being deleted."""
    found = await objects.list_(client, PODS, namespace=namespace, labels=f"{manifests.LAB_LABEL}={name}")
    return objects.newest(each for each in found.items if not each["metadata"].get("deletionTimestamp"))


async def _opened(relay_client: RelayClient) -> ResumableStream:
    async for _ in (attempts := Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=LISTEN_SECONDS)):
        try:
            return await relay_client.open()
        except (PortRefused, ConnectionLost):
            # A container is ready before its program listens.
            if attempts.is_over:
                raise
    raise AssertionError("unreachable")
