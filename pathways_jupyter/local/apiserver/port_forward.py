"""Port-forward over WebSocket, in the two protocols that clients speak: channels, and kubectl's SPDY in messages.

A slow reader at either end stalls all ports of one WebSocket, since they share it.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable

from aiohttp import WSCloseCode, web

from pathways_jupyter.base import tasks
from pathways_jupyter.local.apiserver.api_errors import bad_request
from pathways_jupyter.local.apiserver.channels import CHUNK, Channels, open_channels
from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.apiserver.spdy import SpdyConnection, SpdyError, SpdyStream

Dial = Callable[[int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Connects to a port of the pod; raises OSError or LookupError if it cannot."""

CHANNEL_PROTOCOL = "v4.channel.k8s.io"
SPDY_PROTOCOL = "SPDY/3.1+portforward.k8s.io"
_WRITE_BUFFER = 4 * 1024 * 1024
"""Bytes that one connection into the pod may buffer before it stalls the client."""
_MOST_PORTS = 120
"""Channels are numbered by one byte, two to a port."""


async def forward_over_channels(
    request: web.BaseRequest, pod: Object, dial: Dial, *, idle_seconds: float
) -> web.StreamResponse:
    """Forward the ports of the request's query, each with a data and an error channel.

    Raises:
      StatusError: 400, no or impossible ports; 403, a protocol that is not spoken here.
    """
    ports = read_ports(request.query.getall("ports", []))
    writers: dict[int, asyncio.StreamWriter] = {}
    async with open_channels(request, [CHANNEL_PROTOCOL], idle_seconds=idle_seconds) as channels:
        try:
            for channel, port in enumerate(port for port in ports for _ in ("data", "error")):
                await channels.send(struct.pack("<BH", channel, port))
            streams = []
            for channel, port in enumerate(ports):
                try:
                    reader, writer = await dial(port)
                except (OSError, LookupError) as error:
                    await channels.send(bytes([2 * channel + 1]) + _refusal(pod, port, error))
                else:
                    writer.transport.set_write_buffer_limits(_WRITE_BUFFER)
                    writers[2 * channel] = writer
                    streams.append((2 * channel, reader, writer))

            async def outwards() -> None:
                # Over when the last connection into the pod is, at once when every port was refused.
                await asyncio.gather(*(_copy_from_pod(channels, *each) for each in streams))

            await tasks.first_done(outwards(), _copy_to_pod(channels, writers))
        finally:
            for writer in writers.values():
                writer.close()
    return channels.socket


async def _copy_from_pod(
    channels: Channels, channel: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    with contextlib.suppress(OSError):
        await channels.send_stream(channel, reader)
    # The channel protocol has no half-close: the end of one direction is the end of both.
    writer.close()


async def _copy_to_pod(channels: Channels, writers: dict[int, asyncio.StreamWriter]) -> None:
    while (message := await channels.next_message()) is not None:
        channel, data = message
        writer = writers.get(channel)
        if writer is not None and not writer.is_closing():
            with contextlib.suppress(OSError):
                writer.write(data)
                await writer.drain()


def read_ports(values: list[str]) -> list[int]:
    """Return the ports of a request: ``ports=1&ports=2`` or ``ports=1,2``.

    Raises:
      StatusError: 400.
    """
    texts = [text for value in values for text in value.split(",")]
    if not texts or len(texts) > _MOST_PORTS or not all(map(_is_port, texts)):
        raise bad_request(f'query parameter "ports" must be 1 to {_MOST_PORTS} ports, not "{",".join(texts)}"')
    return [int(text) for text in texts]


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65536


def _refusal(pod: Object, port: int, error: Exception) -> bytes:
    """Return the error message for a port that cannot be reached."""
    metadata = pod["metadata"]
    return f"error forwarding port {port} to pod {metadata['name']}, uid {metadata['uid']}: {error}".encode()


async def forward_over_spdy(
    request: web.BaseRequest, pod: Object, dial: Dial, *, idle_seconds: float
) -> web.StreamResponse:
    """Serve SPDY inside a WebSocket's messages: the only way in which kubectl forwards ports over WebSocket.

    Raises:
      StatusError: 403, a protocol that is not spoken here.
    """
    async with open_channels(request, [SPDY_PROTOCOL], idle_seconds=idle_seconds) as channels:
        forwarder = _SpdyForwarder(pod, dial, channels.send)
        try:
            while (data := await channels.receive()) is not None:
                await forwarder.connection.feed(data)
        except SpdyError as error:
            await channels.socket.close(code=WSCloseCode.PROTOCOL_ERROR, message=str(error).encode()[:100])
        finally:
            await forwarder.close()
    return channels.socket


class _SpdyForwarder:
    """Serves one client's forwarded connections, each on a pair of streams: one for data and one for its error.

    Args:
      send: Sends bytes to the client.
    """

    def __init__(self, pod: Object, dial: Dial, send: Callable[[bytes], Awaitable[None]]) -> None:
        self.connection = SpdyConnection(send, self._on_stream)
        self._pod = pod
        self._dial = dial
        self._waiting: dict[str, SpdyStream] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End every connection."""
        await tasks.stop(*self._tasks)

    def _on_stream(self, stream: SpdyStream) -> bool:
        kind, request = stream.headers.get("streamtype", ""), stream.headers.get("requestid", "")
        if kind not in ("data", "error") or not _is_port(stream.headers.get("port", "")):
            return False
        other = self._waiting.pop(request, None)
        if other is None:
            self._waiting[request] = stream
            return True
        data, error = (stream, other) if kind == "data" else (other, stream)
        writer: asyncio.Future[asyncio.StreamWriter | None] = asyncio.get_running_loop().create_future()

        async def pass_on(piece: bytes) -> None:
            # The client may send before the connection into the pod is there.
            if (target := await writer) is None or target.is_closing():
                return
            with contextlib.suppress(OSError):
                if piece:
                    target.write(piece)
                    await target.drain()
                else:
                    target.write_eof()

        data.sink = pass_on
        task = asyncio.create_task(self._forward(data, error, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _forward(
        self, data: SpdyStream, error: SpdyStream, connected: asyncio.Future[asyncio.StreamWriter | None]
    ) -> None:
        port = int(data.headers["port"])
        try:
            reader, writer = await self._dial(port)
        except (OSError, LookupError) as reason:
            connected.set_result(None)
            await error.write(_refusal(self._pod, port, reason))
        else:
            writer.transport.set_write_buffer_limits(_WRITE_BUFFER)
            connected.set_result(writer)
            try:
                with contextlib.suppress(OSError):
                    while piece := await reader.read(CHUNK):
                        await data.write(piece)
            finally:
                writer.close()
        finally:
            for stream in (data, error):
                self.connection.streams.pop(stream.number, None)
        await data.close()
        await error.close()
