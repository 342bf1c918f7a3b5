"""The remote half of a forwarded connection: a WebSocket to a port of a pod (``v4.channel.k8s.io``).

It carries two channels, one for data and one for an error message; each message begins with its channel's number. The
protocol has no half-close and does not acknowledge that the port was reached: one learns that from the first bytes of
data, or from an error message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pathways_jupyter.errors import ClusterError
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.kube.problems import ConnectionLost
from pathways_jupyter.kube.websocket import WebSocket

PROTOCOL = "v4.channel.k8s.io"

KEEP_ALIVE_SECONDS = 15.0
"""Time between the messages that keep an idle connection open, also where a kubelet closes it after 20 s."""

_DATA, _ERROR = 0, 1
_MAX_PENDING_BYTES = 256 * 1024
_MAX_ERROR_BYTES = 4096


class PortRefused(ClusterError):
    """The pod exists, but nothing in it listens on that port."""


@dataclass(frozen=True)
class Target:
    """A port of a pod."""

    client: Client
    namespace: str
    pod: str
    port: int

    def __str__(self) -> str:
        return f"port {self.port} of pod {self.pod}"


class Remote:
    """The remote half of a connection.

    A kubelet closes a stream without messages after four hours, or what its `streamingConnectionIdleTimeout` says. JAX
    sends nothing between computations, so an idle session would lose its arrays. Pings do not count as messages: the
    kubelet's WebSocket library answers them itself. So an empty message is sent on the data channel now and then: it
    counts, and it delivers no bytes to the program in the pod.

    Attributes:
      answered: Set once data has arrived from the pod, or the connection has ended.
      ended: Whether the connection has ended.
      error: Why it ended; None while it is open, or when it was closed properly.
    """

    def __init__(self, target: Target, socket: WebSocket) -> None:
        self.target = target
        self.answered = asyncio.Event()
        self.ended = False
        self.error: ClusterError | None = None
        self._socket = socket
        self._near: asyncio.Future[Callable[[memoryview], Awaitable[None]]] = asyncio.get_running_loop().create_future()
        self._pending: deque[memoryview] = deque()
        self._receiving = asyncio.create_task(self._receive())
        self._keeping_alive = asyncio.create_task(self._keep_alive())

    @classmethod
    async def open(cls, target: Target, *, patience: float | None = None) -> Remote:
        """Open a connection; that nothing listens on the port shows only later, in :attr:`error`.

        Args:
          patience: Seconds for which to retry while the server cannot be reached, instead of the client's own.

        Raises:
          ApiError: The pod is gone, or forwarding is forbidden.
          ClusterError: The server could not be reached.
        """
        path = PODS.item(target.namespace, target.pod, "portforward")
        return cls(
            target,
            await target.client.websocket(
                path, protocols=(PROTOCOL,), query={"ports": str(target.port)}, patience=patience
            ),
        )

    async def deliver(self, write: Callable[[memoryview], Awaitable[None]]) -> None:
        """Give `write` all data from the pod, what has arrived already first; return when the connection has ended.

        The next data is not read before `write` returns, so that TCP makes the pod wait for a slow local program.
        """
        while self._pending:
            await write(self._pending.popleft())
        # No await since the last look at what is pending, so no data can overtake other data.
        if not self._near.done():
            self._near.set_result(write)
        await asyncio.wait({self._receiving})

    async def send(self, *data: bytes | memoryview) -> None:
        """Send bytes, which must not change afterwards, to the pod; wait while the write buffer is full.

        Raises:
          ConnectionLost: The connection has ended.
        """
        await self._socket.send(b"\0", *data)

    def close(self) -> None:
        """Close the connection."""
        self._receiving.cancel()
        self._keeping_alive.cancel()
        self._socket.close()

    async def _receive(self) -> None:
        error: ClusterError | None = None
        # The first two bytes of each channel are the port's number, which is known.
        skip = [2, 2]
        try:
            async for message in self._socket:
                if not message or message[0] not in {_DATA, _ERROR}:
                    continue
                channel, data = message[0], memoryview(message)[1:]
                if skip[channel]:
                    known = min(skip[channel], len(data))
                    skip[channel] -= known
                    data = data[known:]
                if not data:
                    continue
                if channel == _ERROR:
                    error = self._refusal(bytes(data[:_MAX_ERROR_BYTES]))
                    break
                self.answered.set()
                if not self._near.done():
                    # There is no local half yet (the connection was opened ahead): keep a little, then make the pod
                    # wait. Reading goes on meanwhile, to notice when the connection ends.
                    if sum(map(len, self._pending)) < _MAX_PENDING_BYTES:
                        self._pending.append(data)
                        continue
                    await self._near
                await self._near.result()(data)
        except ConnectionLost as lost:
            error = ConnectionLost(
                f"The connection to {self.target} was lost: {str(lost).partition('lost: ')[2] or lost}",
                hint="The pod may be gone, or the API server restarting; see %pathways status.",
            )
        finally:
            self.ended, self.error = True, error
            self._keeping_alive.cancel()
            self._socket.close()
            self.answered.set()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_SECONDS)
            try:
                await self._socket.send(bytes([_DATA]))
            except ConnectionLost:
                # Where the connection is read, the reason is known better.
                return

    def _refusal(self, text: bytes) -> PortRefused:
        detail = " ".join(text.decode(errors="replace").split())
        return PortRefused(
            f"{self.target} refuses connections: {detail}".replace("port", "Port", 1),
            hint="Check that the program in the pod is running; see its log.",
        )
