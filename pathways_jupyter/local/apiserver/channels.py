"""Kubernetes' channel protocols over WebSocket: every message begins with the number of the stream that it is for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import WSMsgType, web

from pathways_jupyter.local.apiserver.status import forbidden

CHUNK = 256 * 1024
"""Bytes read at once: small reads cost a fifth of the throughput."""
_LARGEST_MESSAGE = 16 * 1024 * 1024


async def open_channels(request: web.BaseRequest, protocols: Sequence[str]) -> web.WebSocketResponse:
    """Upgrades a request to a WebSocket that speaks one of `protocols`.

    Raises:
      StatusError: 403, the client offers none of them.
    """
    offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if not any(each in protocols for each in offered):
        raise forbidden(f"unable to upgrade: none of the protocols {offered} is one of {list(protocols)}")
    socket = web.WebSocketResponse(protocols=tuple(protocols), compress=False, max_msg_size=_LARGEST_MESSAGE)
    await socket.prepare(request)
    return socket


async def next_message(socket: web.WebSocketResponse) -> tuple[int, memoryview] | None:
    """The next message's channel and content; None once the client is gone."""
    while True:
        message = await socket.receive()
        if message.type is WSMsgType.BINARY:
            if message.data:
                return message.data[0], memoryview(message.data)[1:]
        elif message.type is WSMsgType.TEXT:
            data = message.data.encode()
            if data:
                return data[0], memoryview(data)[1:]
        else:
            return None


async def send_stream(socket: web.WebSocketResponse, channel: int, reader: asyncio.StreamReader) -> None:
    """Sends everything that `reader` gives on one channel."""
    prefix = bytes([channel])
    while data := await reader.read(CHUNK):
        await socket.send_bytes(prefix + data)
