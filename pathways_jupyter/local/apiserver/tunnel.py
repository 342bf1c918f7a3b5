"""Port-forward over WebSocket (``v4.channel.k8s.io``): one data and one error channel for each port of the request.

Arrays travel through here, so it is built for throughput: bytes are passed on in the event loop's callback in which
they arrived, without a task or a queue, and a slow reader on either side pauses reading on the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import cast

from pathways_jupyter.local.apiserver.api_errors import bad_request, forbidden
from pathways_jupyter.local.apiserver.door import Head
from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.apiserver.runtime import PodRuntime
from pathways_jupyter.local.apiserver.websocket_frames import FrameError, FrameReader, Opcode, accept_key, frame_head
from pathways_jupyter.local.connection_bounds import IdleTimer

PROTOCOL = "v4.channel.k8s.io"
_HELD_BYTES = 1024 * 1024
"""Bytes that may be buffered in each direction before the sender is paused."""
_CLOSE_SECONDS = 5.0
_MOST_PORTS = 120
"""Channels are numbered by one byte, two to a port."""


class _PodConnection(asyncio.Protocol):
    """One connection into the pod; forwards data to the client in the callback in which it arrives.

    Args:
      channel: The channel number of its data.
    """

    def __init__(self, tunnel: Tunnel, channel: int) -> None:
        self.channel = channel
        self.transport: asyncio.Transport | None = None
        self.ended = False
        self._tunnel = tunnel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection into the pod."""
        # uvloop's transports behave as asyncio's, but are not of its types.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(_HELD_BYTES)

    def data_received(self, data: bytes) -> None:
        """Pass on what the pod sent."""
        self._tunnel.send(self.channel, data)

    def eof_received(self) -> bool:
        """Close the connection when the pod half-closes it: the channel protocol has no half-close."""
        self._end()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """Mark the connection as ended."""
        self._end()

    def pause_writing(self) -> None:
        """Pause the client while the pod's buffer is full."""
        self._tunnel.hold(self, True)

    def resume_writing(self) -> None:
        """Resume the client."""
        self._tunnel.hold(self, False)

    def _end(self) -> None:
        self.ended = True
        self._tunnel.hold(self, False)
        self._tunnel.check()


class Tunnel(asyncio.Protocol):
    """One client's WebSocket and the connections behind it.

    Args:
      transport: The connection, whose reading is paused, and whose next bytes are frames.
      rest: Frames that have been received already.
      idle_seconds: How long it may be without a message, in either direction.
      before: The protocol that had the connection, if any; it is notified of the loss.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        rest: bytes,
        runtime: PodRuntime,
        pod: Object,
        ports: list[int],
        *,
        idle_seconds: float,
        before: asyncio.Protocol | None,
    ) -> None:
        self._idle = IdleTimer(transport, idle_seconds)
        self._before = before
        self._transport = transport
        self._rest = rest
        self._runtime = runtime
        self._pod = pod
        self._ports = ports
        self._connections = [_PodConnection(self, 2 * index) for index in range(len(ports))]
        self._frames = FrameReader(self._on_piece, self._on_control)
        self._target: asyncio.Transport | None = None
        self._full: set[_PodConnection] = set()
        self._gone = asyncio.Event()
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Connect the ports, and serve until the client disconnects or every connection has ended."""
        try:
            self._transport.set_write_buffer_limits(_HELD_BYTES)
            for connection, port in zip(self._connections, self._ports, strict=True):
                for channel in (connection.channel, connection.channel + 1):
                    self.send(channel, struct.pack("<H", port))
            await self._connect()
            # Only now, since a channel's bytes need a connection to go to.
            if self._rest:
                self.data_received(self._rest)
            if not self._full and not self._gone.is_set():
                self._transport.resume_reading()
            await self._over.wait()
            await self._close_handshake()
        finally:
            self._idle.stop()
            self._gone.set()
            for connection in self._connections:
                if connection.transport is not None:
                    connection.transport.close()
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Parse frames from the client."""
        try:
            self._frames.feed(data)
        except FrameError:
            self._transport.write(frame_head(Opcode.CLOSE, 2) + struct.pack(">H", 1002))
            self._leave()

    def connection_lost(self, error: Exception | None) -> None:
        """End the tunnel."""
        self._leave()
        if self._before is not None:
            self._before.connection_lost(error)

    def pause_writing(self) -> None:
        """Pause the pod's connections while the client's buffer is full."""
        for transport in self._open_transports():
            transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume the pod's connections."""
        for transport in self._open_transports():
            transport.resume_reading()

    def send(self, channel: int, data: bytes) -> None:
        """Send `data` on one of the client's channels."""
        if not self._gone.is_set():
            self._idle.touch()
            self._transport.writelines((frame_head(Opcode.BINARY, len(data) + 1) + bytes((channel,)), data))

    def hold(self, connection: _PodConnection, full: bool) -> None:
        """Pause the client while one of the connections is `full`: all channels share the client's WebSocket."""
        before = bool(self._full)
        (self._full.add if full else self._full.discard)(connection)
        if bool(self._full) is not before and not self._gone.is_set():
            (self._transport.pause_reading if self._full else self._transport.resume_reading)()

    def check(self) -> None:
        """End the tunnel when every connection has ended."""
        if all(each.ended for each in self._connections):
            self._over.set()

    async def _connect(self) -> None:
        """Connect to every port; report failures on the port's error channel."""
        for each, port in zip(self._connections, self._ports, strict=True):
            try:
                await self._runtime.connect(self._pod["metadata"]["uid"], port, lambda each=each: each)  # type: ignore[misc]
            except (OSError, LookupError) as error:
                self.send(each.channel + 1, refusal_text(self._pod, port, error).encode())
                each.ended = True
        self.check()

    def _open_transports(self) -> list[asyncio.Transport]:
        return [each.transport for each in self._connections if each.transport is not None and not each.ended]

    def _on_piece(self, piece: memoryview, first: bool) -> None:
        """Client to pod."""
        self._idle.touch()
        if first:
            if not piece:
                return
            channel, piece = piece[0], piece[1:]
            known = channel % 2 == 0 and channel // 2 < len(self._connections)
            self._target = self._connections[channel // 2].transport if known else None
        if self._target is not None and piece and not self._target.is_closing():
            self._target.write(piece)

    def _on_control(self, opcode: Opcode, payload: bytes) -> None:
        if opcode is Opcode.PING:
            self._transport.write(frame_head(Opcode.PONG, len(payload)) + payload)
        elif opcode is Opcode.CLOSE:
            if not self._gone.is_set():
                self._transport.write(frame_head(Opcode.CLOSE, len(payload)) + payload)
            self._leave()

    def _leave(self) -> None:
        """Note that the client has gone, or has broken the protocol."""
        self._gone.set()
        self._over.set()

    async def _close_handshake(self) -> None:
        """Close with a handshake: closing a socket with unread input resets it, which drops the last output."""
        if self._gone.is_set():
            return
        self._transport.write(frame_head(Opcode.CLOSE, 2) + struct.pack(">H", 1000))
        self._transport.resume_reading()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._gone.wait()


def open_tunnel(
    head: Head,
    transport: asyncio.Transport,
    rest: bytes,
    runtime: PodRuntime,
    pod: Object,
    *,
    idle_seconds: float,
    before: asyncio.Protocol | None = None,
) -> Tunnel:
    """Answer the handshake of a port-forward, and take over its connection.

    Raises:
      StatusError: 400, no or impossible ports or a malformed handshake; 403, a protocol that is not spoken here.
    """
    ports = read_ports(head.query.getall("ports", []))
    offered = [each.strip() for each in head.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if PROTOCOL not in offered:
        raise forbidden(f"unable to upgrade: none of the protocols {offered} is {PROTOCOL}")
    key = head.headers.get("Sec-WebSocket-Key", "")
    if head.method != "GET" or head.headers.get("Sec-WebSocket-Version") != "13" or not key:
        raise bad_request("unable to upgrade: the WebSocket handshake is malformed")
    transport.write(
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept_key(key)}\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n"
        ).encode()
    )
    tunnel = Tunnel(transport, rest, runtime, pod, ports, idle_seconds=idle_seconds, before=before)
    transport.set_protocol(tunnel)
    return tunnel


def read_ports(values: list[str]) -> list[int]:
    """The ports of a request: ``ports=1&ports=2`` or ``ports=1,2``.

    Raises:
      StatusError: 400.
    """
    texts = [text for value in values for text in value.split(",")]
    if not texts:
        raise bad_request('query parameter "ports" is required')
    if len(texts) > _MOST_PORTS:
        raise bad_request(f"at most {_MOST_PORTS} ports can be forwarded at once")
    for text in texts:
        if not (text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65536):
            raise bad_request(f'unable to parse "{text}" as a port')
    return [int(text) for text in texts]


def refusal_text(pod: Object, port: int, error: Exception) -> str:
    """The error message for a port that cannot be reached."""
    metadata = pod["metadata"]
    return f"error forwarding port {port} to pod {metadata['name']}, uid {metadata['uid']}: {error}"
