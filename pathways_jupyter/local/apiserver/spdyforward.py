"""Port-forward over SPDY: a pair of streams per connection, one for data and one for its error."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from aiohttp import WSCloseCode, web

from pathways_jupyter.local.apiserver.channels import CHUNK, open_channels
from pathways_jupyter.local.apiserver.door import UpgradedConnection
from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.apiserver.runtime import PodRuntime
from pathways_jupyter.local.apiserver.spdy import SpdyConnection, SpdyError, SpdyStream
from pathways_jupyter.local.apiserver.tunnel import refusal_text

PROTOCOL = "portforward.k8s.io"
TUNNEL_PROTOCOL = "SPDY/3.1+portforward.k8s.io"
_WRITE_BUFFER = 4 * 1024 * 1024
"""Bytes that one connection may buffer before it stalls the others."""


class SpdyForwarder:
    """Serves one client's forwarded connections.

    Args:
      send: Sends bytes to the client.
    """

    def __init__(self, runtime: PodRuntime, pod: Object, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._pod = pod
        self._connection = SpdyConnection(send, self._on_stream)
        self._waiting: dict[str, SpdyStream] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def feed(self, data: bytes | memoryview) -> None:
        """Handle what the client sent.

        Raises:
          SpdyError: It is not SPDY.
        """
        await self._connection.feed(data)

    async def close(self) -> None:
        """End every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_stream(self, stream: SpdyStream) -> bool:
        kind, request = stream.headers.get("streamtype", ""), stream.headers.get("requestid", "")
        if kind not in ("data", "error") or not stream.headers.get("port", "").isdigit():
            return False
        stream.sink = _ignore
        other = self._waiting.pop(request, None)
        if other is None:
            self._waiting[request] = stream
            return True
        data, error = (stream, other) if kind == "data" else (other, stream)
        forwarded = _Forwarded(data, error)
        data.sink = forwarded.take
        task = asyncio.create_task(self._forward(forwarded))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _forward(self, forwarded: _Forwarded) -> None:
        data, error = forwarded.data, forwarded.error
        port = int(data.headers["port"])
        try:
            reader, writer = await self._runtime.dial(self._pod["metadata"]["uid"], port)
        except (OSError, LookupError) as reason:
            forwarded.writer.set_result(None)
            await error.write(refusal_text(self._pod, port, reason).encode())
        else:
            writer.transport.set_write_buffer_limits(_WRITE_BUFFER)
            forwarded.writer.set_result(writer)
            try:
                with contextlib.suppress(OSError):
                    while piece := await reader.read(CHUNK):
                        await data.write(piece)
            finally:
                writer.close()
        finally:
            for stream in (data, error):
                self._connection.streams.pop(stream.number, None)
        await data.close()
        await error.close()


class _Forwarded:
    """One connection: its two streams, and its connection into the pod once there is one."""

    def __init__(self, data: SpdyStream, error: SpdyStream) -> None:
        self.data = data
        self.error = error
        self.writer: asyncio.Future[asyncio.StreamWriter | None] = asyncio.get_running_loop().create_future()

    async def take(self, piece: bytes) -> None:
        """Pass on what the client sent."""
        writer = await self.writer
        if writer is None or writer.is_closing():
            return
        with contextlib.suppress(OSError):
            if piece:
                writer.write(piece)
                await writer.drain()
            else:
                writer.write_eof()


async def _ignore(piece: bytes) -> None:
    """Sink of the stream that only the server writes to."""


async def forward_over_websocket(
    request: web.BaseRequest, runtime: PodRuntime, pod: Object, *, idle_seconds: float
) -> web.StreamResponse:
    """Serve SPDY inside a WebSocket's messages, as current kubectl sends it.

    Raises:
      StatusError: 403, a protocol that is not spoken here.
    """
    async with open_channels(request, [TUNNEL_PROTOCOL], idle_seconds=idle_seconds) as channels:
        forwarder = SpdyForwarder(runtime, pod, channels.send)
        try:
            while (data := await channels.receive()) is not None:
                await forwarder.feed(data)
        except SpdyError as error:
            await channels.close(code=WSCloseCode.PROTOCOL_ERROR, message=str(error).encode()[:100])
        finally:
            await forwarder.close()
    return channels.socket


async def forward_over_spdy(connection: UpgradedConnection, runtime: PodRuntime, pod: Object) -> None:
    """Serve SPDY on a connection that was upgraded to it, as older clients do."""
    forwarder = SpdyForwarder(runtime, pod, connection.send)
    try:
        while data := await connection.receive():
            await forwarder.feed(data)
    except (SpdyError, OSError):
        return
    finally:
        await forwarder.close()
