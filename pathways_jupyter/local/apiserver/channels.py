"""Kubernetes' channel protocols over WebSocket: the first byte of a message is its channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import WSMsgType, web

from pathways_jupyter.local.apiserver.api_errors import StatusError

CHUNK = 256 * 1024
"""Bytes read at once: small reads cost a fifth of the throughput."""
_LARGEST_MESSAGE = 16 * 1024 * 1024


class Channels:
    """Server side of one WebSocket; every message, in either direction, resets the deadline `idle`."""

    def __init__(self, socket: web.WebSocketResponse, idle: asyncio.Timeout, idle_seconds: float) -> None:
        self.socket = socket
        self._idle = idle
        self._idle_seconds = idle_seconds

    async def receive(self) -> bytes | None:
        """Return the next message; None once the client is gone."""
        message = await self.socket.receive()
        self._idle.reschedule(asyncio.get_running_loop().time() + self._idle_seconds)
        if message.type is WSMsgType.BINARY:
            return bytes(message.data)
        return message.data.encode() if message.type is WSMsgType.TEXT else None

    async def next_message(self) -> tuple[int, bytes] | None:
        """Return the next message's channel and content; None once the client is gone."""
        while (data := await self.receive()) is not None:
            if data:
                return data[0], data[1:]
        return None

    async def send(self, data: bytes) -> None:
        """Send one message."""
        self._idle.reschedule(asyncio.get_running_loop().time() + self._idle_seconds)
        await self.socket.send_bytes(data)

    async def send_stream(self, channel: int, reader: asyncio.StreamReader) -> None:
        """Send everything that `reader` yields on one channel."""
        prefix = bytes([channel])
        while data := await reader.read(CHUNK):
            await self.send(prefix + data)


@asynccontextmanager
async def open_channels(
    request: web.BaseRequest, protocols: Sequence[str], *, idle_seconds: float
) -> AsyncIterator[Channels]:
    """Upgrade a request to a WebSocket that speaks one of `protocols`, cut after `idle_seconds` without a message.

    Like the kubelet, it counts messages in either direction, empty ones included, but no WebSocket pings, which the
    library answers without reporting them. The WebSocket is closed with a handshake when the block ends otherwise.

    Raises:
      StatusError: 403, the client offers none of them.
    """
    offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if not any(each in protocols for each in offered):
        raise StatusError(403, f"unable to upgrade: none of the protocols {offered} is one of {list(protocols)}")
    socket = web.WebSocketResponse(protocols=tuple(protocols), compress=False, max_msg_size=_LARGEST_MESSAGE)
    await socket.prepare(request)
    try:
        async with asyncio.timeout(idle_seconds) as idle:
            yield Channels(socket, idle, idle_seconds)
    except TimeoutError:
        # A kubelet's deadline applies to writing as well, so the client gets no closing frame from it either.
        if request.transport is not None:
            request.transport.abort()
    else:
        await socket.close()
