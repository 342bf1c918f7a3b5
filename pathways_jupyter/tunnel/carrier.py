"""A carrier: a WebSocket to a port of a pod, through the API server (``v4.channel.k8s.io``).

It carries two channels, one for data and one for an error message; each message begins with its channel's number. The
protocol has no half-close and does not acknowledge that the port was reached: one learns that from the first bytes of
data, or from an error message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pathways_jupyter.base.errors import ClusterError, ConnectionLost
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.kube.websocket import WebSocket
from pathways_jupyter.tunnel.local_connection import Inbox

if TYPE_CHECKING:
    from pathways_jupyter.kube.library import Sent

PROTOCOL = "v4.channel.k8s.io"

KEEP_ALIVE_SECONDS = 15.0
"""Time between the messages that keep an idle connection open, also where a kubelet closes it after 20 s."""

_DATA, _ERROR = 0, 1
_MAX_ERROR_BYTES = 4096


class PortRefused(ClusterError):
    """The pod exists, but nothing in it listens on that port."""


@dataclass(frozen=True)
class PodPort:
    """A port of a pod."""

    client: Client
    namespace: str
    pod: str
    port: int

    def __str__(self) -> str:
        return f"port {self.port} of pod {self.pod}"


class Carrier:
    """A connection to a port of a pod.

    A kubelet closes a stream without messages after four hours, or what its `streamingConnectionIdleTimeout` says. JAX
    sends nothing between computations, so an idle session would lose its arrays. Pings do not count as messages: the
    kubelet's WebSocket library answers them itself. So an empty message is sent on the data channel now and then: it
    counts, and it delivers no bytes to the program in the pod.

    Attributes:
      answered: Set once data has arrived from the pod, or the connection has ended.
      ended: Whether the connection has ended.
      error: Why it ended; None while it is open, or when it was closed properly.
    """

    def __init__(self, target: PodPort, socket: WebSocket) -> None:
        self.target = target
        self.answered = asyncio.Event()
        self.ended = False
        self.error: ClusterError | None = None
        self._socket = socket
        self._inbox = Inbox()
        self._receiving = asyncio.create_task(self._receive())
        self._keeping_alive = asyncio.create_task(self._keep_alive())

    @classmethod
    async def open(cls, target: PodPort, *, patience: float | None = None) -> Carrier:
        """Open a connection; that nothing listens on the port shows only later, in :attr:`error`.

        Args:
          patience: Seconds for which to retry while the server cannot be reached, instead of the client's own.

        Raises:
          ApiError: The pod is gone, or forwarding is forbidden.
          ClusterError: The server could not be reached.
        """
        path, query = PODS.item(target.namespace, target.pod, "portforward"), {"ports": str(target.port)}
        return cls(target, await target.client.websocket(path, protocols=(PROTOCOL,), query=query, patience=patience))

    def sent(self) -> Sent:
        """Return how much of what was sent the API server has taken."""
        return self._socket.sent()

    async def deliver(self, write: Callable[[memoryview], Awaitable[None]]) -> None:
        """Give `write` all data from the pod, what has arrived already first; return when the connection has ended.

        The next data is not read before `write` returns, so that TCP makes the pod wait for a slow local program.
        """
        await self._inbox.open(write)
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

    def abort(self) -> None:
        """Drop the connection at once, as a network does that fails."""
        self._socket.abort()

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
                    detail = " ".join(bytes(data[:_MAX_ERROR_BYTES]).decode(errors="replace").split())
                    error = PortRefused(
                        f"Port {self.target.port} of pod {self.target.pod} refuses connections: {detail}",
                        hint="Check that the program in the pod is running; see its log.",
                    )
                    break
                self.answered.set()
                # Where the carrier was opened ahead there is no local program yet; reading goes on for a while, to
                # notice when the connection ends.
                await self._inbox.put(data)
        except ConnectionLost as lost:
            error = ConnectionLost(
                f"The connection to {self.target} was lost: {str(lost).partition('lost: ')[2] or lost}",
                hint=advice("The pod may be gone, or the API server restarting; see {status}."),
            )
        finally:
            # Before `answered` is set: what waits for that looks at the error next.
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
