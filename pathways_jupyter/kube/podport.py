"""The remote half of a forwarded connection: a WebSocket to a port of a pod (``v4.channel.k8s.io``).

It carries two channels, one for data and one for an error message; each message begins with its channel's number. The
protocol has no half-close and does not acknowledge that the port was reached: one learns that from the first bytes of
data, or from an error message.
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
"""Free bytes that :meth:`Remote.send` needs before the data."""

KEEP_ALIVE_SECONDS = 60.0
"""Time between the messages that keep an idle connection open."""

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


class Near(Protocol):
    """The local half of a connection, as the remote half sees it."""

    def write(self, data: memoryview | bytes) -> None:
        """Write bytes from the pod to the local socket."""

    def holds_bytes(self) -> bool:
        """Whether bytes given to :meth:`write` are still buffered, so that their memory must not be reused."""

    def pause_reading(self) -> None:
        """Stop reading from the local socket, because the WebSocket's write buffer is full."""

    def resume_reading(self) -> None:
        """Continue to read from the local socket."""

    def remote_closed(self, error: ClusterError | None) -> None:
        """End this half, because the remote one has ended: properly (`error` is None) or not."""


class Remote:
    """The remote half of a connection: a WebSocket that feeds the local half.

    A kubelet closes a stream without messages after four hours (`streamingConnectionIdleTimeout`). JAX sends nothing
    between computations, so an idle session would lose its arrays over night. Pings do not count as messages: the
    kubelet's WebSocket library answers them itself. So an empty message is sent on the data channel once a minute: it
    counts, and it delivers no bytes to the program in the pod.

    Attributes:
      answered: Set once data has arrived from the pod, or the connection has ended.
      ended: Whether the connection has ended.
      error: Why it ended; None while it is open, or when it was closed properly.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.answered = asyncio.Event()
        self.ended = False
        self.error: ClusterError | None = None
        self._socket: WebSocket | None = None
        self._local: Near | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._channel = -1
        # The first two bytes of each channel are the port's number, which is known.
        self._skip = [2, 2]
        self._error_text = b""
        self._keep_alive: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, target: Target) -> Remote:
        """Open a connection; that nothing listens on the port shows only later, in :attr:`error`.

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
        """Pass on all data to `local`, what has arrived already first."""
        self._local = local
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        for data in pending:
            local.write(data)
        if self._socket is not None:
            self._socket.resume_reading()
        if self.ended:
            local.remote_closed(self.error)

    def send(self, buffer: memoryview, begin: int, end: int) -> None:
        """Send ``buffer[begin:end]`` to the pod, overwriting the :data:`HEADROOM` bytes before `begin`."""
        if self._socket is not None:
            buffer[begin - 1] = _DATA
            self._socket.send_in_place(buffer, begin - 1, end)

    def pause_reading(self) -> None:
        """Stop reading from the pod, because the local socket's write buffer is full."""
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Continue to read from the pod."""
        if self._socket is not None:
            self._socket.resume_reading()

    def close(self) -> None:
        """Close the connection; :meth:`Near.remote_closed` is not called."""
        self._local = None
        self._cancel_keep_alive()
        if self._socket is not None:
            self._socket.close()

    # Callbacks of the WebSocket.

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
            self._error_text = (self._error_text + data)[:_MAX_ERROR_BYTES]
            self._end(self._refusal())
            return
        self.answered.set()
        if self._local is not None:
            self._local.write(data)
            return
        # There is no local half yet (the connection was opened ahead): buffer a little, then make the pod wait.
        self._pending.append(bytes(data))
        self._pending_bytes += len(data)
        if self._pending_bytes > _MAX_PENDING_BYTES:
            self.pause_reading()

    def holds_bytes(self) -> bool:
        """See :class:`pathways_jupyter.kube.websocket.Receiver`."""
        return self._local is not None and self._local.holds_bytes()

    def closed(self, error: ClusterError | None) -> None:
        """See :class:`pathways_jupyter.kube.websocket.Receiver`."""
        if self._error_text:
            # The error message is the reason; that the socket closed is only its consequence.
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
            self._local.pause_reading()

    def resume(self) -> None:
        """See :class:`pathways_jupyter.kube.websocket.Receiver`."""
        if self._local is not None:
            self._local.resume_reading()

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
        detail = " ".join(self._error_text.decode(errors="replace").split())
        return PortRefused(
            f"{self.target} refuses connections: {detail}".replace("port", "Port", 1),
            hint="Check that the program in the pod is running; see its log.",
        )

    def _end(self, error: ClusterError | None) -> None:
        if self.ended:
            return
        self.ended, self.error = True, error
        self._cancel_keep_alive()
        self.answered.set()
        if self._local is not None:
            self._local.remote_closed(error)
