"""The far half of a forwarded connection: a WebSocket that leads to a port of a pod (``v4.channel.k8s.io``).

Two channels travel in it, one for data and one for what went wrong, each message beginning with the channel's number.
There is no half-closing in this protocol, and no word that the port was reached: only the first bytes tell, or the
refusal.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from pathways_jupyter.errors import ClusterError
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.kube.problems import ConnectionLost
from pathways_jupyter.kube.websocket import HEADROOM as FRAME_HEADROOM
from pathways_jupyter.kube.websocket import WebSocket

PROTOCOL = "v4.channel.k8s.io"

# Room for a frame's head and for the byte that names the channel.
HEADROOM = FRAME_HEADROOM + 1
"""Bytes before a message that :meth:`Remote.send` may need."""

KEEP_ALIVE_SECONDS = 60.0
"""Between the messages that keep an idle connection open."""

_DATA, _ERROR = 0, 1
_HELD_BYTES = 256 * 1024
_LONGEST_ERROR = 4096


class PortRefused(ClusterError):
    """The pod is there, but nothing in it takes connections on that port."""


@dataclass(frozen=True)
class Target:
    """A port of a pod."""

    client: Client
    namespace: str
    pod: str
    port: int

    def __str__(self) -> str:
        return f"port {self.port} of pod {self.pod}"


class Near(Protocol):
    """The near half, as the far one sees it."""

    def write(self, data: memoryview | bytes) -> None:
        """Takes bytes of the pod."""

    def holds_bytes(self) -> bool:
        """Whether bytes given to :meth:`write` have not left yet."""

    def hold(self) -> None:
        """Sends nothing more for now."""

    def go_on(self) -> None:
        """Sends again."""

    def remote_closed(self, error: ClusterError | None) -> None:
        """The far half has ended; None when it ended properly."""


class Remote:
    """The far half of a connection: a WebSocket, and the local half that takes what comes out of it.

    A kubelet cuts a stream that carried no message for four hours (`streamingConnectionIdleTimeout`), and JAX sends
    nothing while nobody computes, so an idle session would lose its arrays over night. Pings do not count there, for
    they are answered below the place where messages are counted. So once a minute an empty message is sent on the data
    channel: the kubelet counts it, and there are no bytes in it for the program in the pod.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.greeted = asyncio.Event()
        self.ended = False
        self.error: ClusterError | None = None
        self._socket: WebSocket | None = None
        self._local: Near | None = None
        self._held: list[bytes] = []
        self._holding = 0
        self._channel = -1
        # Each channel begins with the port's number, which says nothing new.
        self._skip = [2, 2]
        self._complaint = b""
        self._keep_alive: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, target: Target) -> Remote:
        """Opens a connection; whether anything listens on the port shows later, in :attr:`error`.

        Raises:
          ApiError: The pod is gone, or forwarding is forbidden.
          ClusterError: The server could not be reached.
        """
        remote = cls(target)
        remote._socket = await target.client.open_websocket(
            PODS.item(target.namespace, target.pod, "portforward"),
            remote,
            protocols=(PROTOCOL,),
            query={"ports": str(target.port)},
        )
        remote._schedule_keep_alive()
        return remote

    def join(self, local: Near) -> None:
        """Hands everything that came, and will come, to `local`."""
        self._local = local
        held, self._held, self._holding = self._held, [], 0
        for data in held:
            local.write(data)
        if self._socket is not None:
            self._socket.resume_reading()
        if self.ended:
            local.remote_closed(self.error)

    def send(self, buffer: memoryview, begin: int, end: int) -> None:
        """Sends ``buffer[begin:end]`` to the pod; the :data:`HEADROOM` before it is overwritten."""
        if self._socket is not None:
            buffer[begin - 1] = _DATA
            self._socket.send_in_place(buffer, begin - 1, end)

    def hold(self) -> None:
        """Makes the pod wait."""
        if self._socket is not None:
            self._socket.pause_reading()

    def go_on(self) -> None:
        """Takes bytes from the pod again."""
        if self._socket is not None:
            self._socket.resume_reading()

    def close(self) -> None:
        """Ends the connection."""
        self._local = None
        self._cancel_keep_alive()
        if self._socket is not None:
            self._socket.close()

    # What the WebSocket calls.

    def payload(self, data: memoryview, *, first: bool, last: bool) -> None:
        """See :class:`pathways_jupyter.kube.websocket.Receiver`."""
        if first:
            self._channel = -1
        if self._channel < 0 and len(data):
            self._channel, data = data[0], data[1:]
        if self._channel not in {_DATA, _ERROR}:
            return
        if skip := min(self._skip[self._channel], len(data)):
            self._skip[self._channel] -= skip
            data = data[skip:]
        if not len(data):
            return
        if self._channel == _ERROR:
            self._complaint = (self._complaint + data)[:_LONGEST_ERROR]
            self._end(self._refusal())
            return
        self.greeted.set()
        if self._local is not None:
            self._local.write(data)
            return
        self._held.append(bytes(data))
        self._holding += len(data)
        if self._holding > _HELD_BYTES:
            self.hold()

    def holds_bytes(self) -> bool:
        """See :class:`pathways_jupyter.kube.websocket.Receiver`."""
        return self._local is not None and self._local.holds_bytes()

    def closed(self, error: ClusterError | None) -> None:
        """See :class:`pathways_jupyter.kube.websocket.Receiver`."""
        if self._complaint:
            error = self._refusal()
        elif isinstance(error, ConnectionLost):
            error = ConnectionLost(
                f"The connection to {self.target} was lost: {str(error).partition('lost: ')[2] or error}",
                hint="The pod may be gone, or the API server restarting; see %pathways status.",
            )
        self._end(error)

    def pause(self) -> None:
        """See :class:`pathways_jupyter.kube.websocket.Receiver`."""
        if self._local is not None:
            self._local.hold()

    def resume(self) -> None:
        """See :class:`pathways_jupyter.kube.websocket.Receiver`."""
        if self._local is not None:
            self._local.go_on()

    def _schedule_keep_alive(self) -> None:
        if not self.ended:
            self._keep_alive = asyncio.get_running_loop().call_later(KEEP_ALIVE_SECONDS, self._send_keep_alive)

    def _send_keep_alive(self) -> None:
        if self._socket is not None:
            self._socket.send(bytes([_DATA]))
        self._schedule_keep_alive()

    def _cancel_keep_alive(self) -> None:
        if self._keep_alive is not None:
            self._keep_alive.cancel()
            self._keep_alive = None

    def _refusal(self) -> PortRefused:
        detail = " ".join(self._complaint.decode(errors="replace").split())
        return PortRefused(
            f"{self.target} takes no connections: {detail}".replace("port", "Port", 1),
            hint="Check that the program in the pod is running; its log says why not.",
        )

    def _end(self, error: ClusterError | None) -> None:
        if self.ended:
            return
        self.ended, self.error = True, error
        self._cancel_keep_alive()
        self.greeted.set()
        if self._local is not None:
            self._local.remote_closed(error)
