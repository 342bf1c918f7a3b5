"""Port-forward over WebSocket (``v4.channel.k8s.io``): one data and one error channel for each port of the request.

This is the path that arrays take, so it is built for throughput: bytes from the client go to the pod in the event
loop's callback in which they came, and either side that reads slowly makes the other side wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from dataclasses import dataclass

from pathways_jupyter.local.apiserver.channels import CHUNK
from pathways_jupyter.local.apiserver.door import Head
from pathways_jupyter.local.apiserver.frames import FrameError, FrameReader, Opcode, accept_key, frame_head
from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.apiserver.runtime import PodRuntime
from pathways_jupyter.local.apiserver.status import bad_request, forbidden

PROTOCOL = "v4.channel.k8s.io"
_HELD_BYTES = 1024 * 1024
"""Bytes that may wait in each direction before the other side is made to wait."""
_FAREWELL_SECONDS = 5.0
_MOST_PORTS = 120
"""Channels are numbered by one byte, two to a port."""


@dataclass
class _Port:
    number: int
    writer: asyncio.StreamWriter | None = None


class Tunnel(asyncio.Protocol):
    """One client's WebSocket and the connections behind it.

    Args:
      transport: The connection, which is paused, and whose next bytes are frames.
      rest: Those that came already.
    """

    def __init__(
        self, transport: asyncio.Transport, rest: bytes, runtime: PodRuntime, pod: Object, ports: list[int]
    ) -> None:
        self._transport = transport
        self._rest = rest
        self._runtime = runtime
        self._pod = pod
        self._ports = [_Port(number) for number in ports]
        self._frames = FrameReader(self._on_piece, self._on_control)
        self._writer: asyncio.StreamWriter | None = None
        self._gone = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._draining: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Connects the ports, and serves until the client goes or every connection has ended."""
        self._transport.set_write_buffer_limits(_HELD_BYTES)
        for index, port in enumerate(self._ports):
            for channel in (2 * index, 2 * index + 1):
                self._send(channel, struct.pack("<H", port.number))
        outwards = [asyncio.create_task(self._serve(*each)) for each in await self._dial()]
        if self._rest:
            self.data_received(self._rest)
        if self._draining is None:
            self._transport.resume_reading()
        gone = asyncio.create_task(self._gone.wait())
        try:
            pending = set(outwards)
            while pending and not gone.done():
                _, waiting = await asyncio.wait({*pending, gone}, return_when=asyncio.FIRST_COMPLETED)
                pending &= waiting
            await self._say_goodbye()
        finally:
            tasks = [*outwards, gone, *([self._draining] if self._draining is not None else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for port in self._ports:
                if port.writer is not None:
                    port.writer.close()
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Takes what the client sent."""
        try:
            self._frames.feed(data)
        except FrameError:
            self._transport.write(frame_head(Opcode.CLOSE, 2) + struct.pack(">H", 1002))
            self._gone.set()

    def connection_lost(self, error: Exception | None) -> None:
        """Ends everything."""
        self._gone.set()
        self._room.set()

    def pause_writing(self) -> None:
        """The client does not take more at the moment."""
        self._room.clear()

    def resume_writing(self) -> None:
        """The client takes more."""
        self._room.set()

    async def _dial(self) -> list[tuple[int, asyncio.StreamReader]]:
        """Connects to every port; tells the client of those that refuse."""
        connected = []
        for index, port in enumerate(self._ports):
            try:
                reader, writer = await self._runtime.dial(self._pod["metadata"]["uid"], port.number)
            except (OSError, LookupError) as error:
                self._send(2 * index + 1, refusal_text(self._pod, port.number, error).encode())
                continue
            writer.transport.set_write_buffer_limits(_HELD_BYTES)
            port.writer = writer
            connected.append((2 * index, reader))
        return connected

    async def _serve(self, channel: int, reader: asyncio.StreamReader) -> None:
        """Pod to client."""
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                self._send(channel, data)
                if not self._room.is_set():
                    await self._room.wait()

    def _send(self, channel: int, data: bytes) -> None:
        if not self._gone.is_set():
            self._transport.writelines((frame_head(Opcode.BINARY, len(data) + 1) + bytes((channel,)), data))

    def _on_piece(self, piece: memoryview, first: bool) -> None:
        """Client to pod."""
        if first:
            channel, piece = piece[0], piece[1:]
            known = channel % 2 == 0 and channel // 2 < len(self._ports)
            self._writer = self._ports[channel // 2].writer if known else None
        writer = self._writer
        if writer is None or not piece or writer.is_closing():
            return
        writer.write(piece)
        if self._draining is None and writer.transport.get_write_buffer_size() > _HELD_BYTES:
            self._transport.pause_reading()
            self._draining = asyncio.create_task(self._drain(writer))

    async def _drain(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await writer.drain()
        self._draining = None
        if not self._gone.is_set():
            self._transport.resume_reading()

    def _on_control(self, opcode: Opcode, payload: bytes) -> None:
        if opcode is Opcode.PING:
            self._transport.write(frame_head(Opcode.PONG, len(payload)) + payload)
        elif opcode is Opcode.CLOSE:
            if not self._gone.is_set():
                self._transport.write(frame_head(Opcode.CLOSE, len(payload)) + payload)
            self._gone.set()

    async def _say_goodbye(self) -> None:
        """Closes properly: a connection that is cut while the client still sends would lose what it was sent last."""
        if self._gone.is_set():
            return
        self._transport.write(frame_head(Opcode.CLOSE, 2) + struct.pack(">H", 1000))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._gone.wait()


def open_tunnel(head: Head, transport: asyncio.Transport, rest: bytes, runtime: PodRuntime, pod: Object) -> Tunnel:
    """Answers the handshake of a request for ports, and takes its connection over.

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
    tunnel = Tunnel(transport, rest, runtime, pod, ports)
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
    """What a client is told about a port that cannot be reached."""
    metadata = pod["metadata"]
    return f"error forwarding port {port} to pod {metadata['name']}, uid {metadata['uid']}: {error}"
