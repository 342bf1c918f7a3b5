"""Routing of new connections: to the HTTP server, or to the handler of the upgrade that the first request asks for.

The HTTP library supports no upgrade except WebSocket's, and its WebSocket is slow for tunnels; so the choice is made
before the library sees the first byte.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from aiohttp import web
from multidict import CIMultiDict, MultiDict

from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.bodies import encode
from pathways_jupyter.local.apiserver.channels import CHUNK
from pathways_jupyter.local.connection_bounds import IdleTimer, Newcomer

_LONGEST_HEAD = 64 * 1024
_METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ")


@dataclass(frozen=True)
class Head:
    """The head of a request that asks for an upgrade."""

    method: str
    path: str
    query: MultiDict[str]
    headers: CIMultiDict[str]

    @property
    def upgrade(self) -> str:
        """The requested protocol in lower case; empty for none."""
        return self.headers.get("Upgrade", "").lower()


UpgradeHandler = Callable[[Head, asyncio.Transport, bytes], Awaitable[None]]
"""Gets a request, its connection (with reading paused), and the bytes that followed the head."""


class Door(asyncio.Protocol):
    """Reads the head of a new connection's first request, then hands the connection to its handler.

    Args:
      server: Takes plain HTTP.
      takes: Whether a request is for `on_upgrade`.
      on_upgrade: Takes over the connection of such a request.
      knows: Whether a request carries a valid token.
      newcomer: The connection's entry among those that have not shown one yet.
    """

    def __init__(
        self,
        server: web.Server,
        takes: Callable[[Head], bool],
        on_upgrade: UpgradeHandler,
        *,
        knows: Callable[[Head], bool],
        newcomer: Newcomer,
    ) -> None:
        self._knows = knows
        self._newcomer = newcomer
        self._server = server
        self._takes = takes
        self._on_upgrade = on_upgrade
        self._transport: asyncio.Transport | None = None
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for the head of the first request."""
        # uvloop's transports behave as asyncio's, but are not of its types.
        self._transport = cast("asyncio.Transport", transport)
        self._newcomer.drop = self._transport.abort

    def connection_lost(self, error: Exception | None) -> None:
        """The client disconnected before it sent a complete head."""
        self._newcomer.leave()

    def data_received(self, data: bytes) -> None:
        """Hand the connection on as soon as the head is complete, or cannot be a valid one."""
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if not self._head.startswith(_METHODS) and not any(each.startswith(self._head) for each in _METHODS):
            self._hand_on()
        elif end >= 0:
            head = _read_head(self._head[:end])
            if head is not None and self._knows(head):
                self._newcomer.leave()
            if head is not None and self._takes(head):
                self._upgrade(head, self._head[end + 4 :])
            else:
                self._hand_on()
        elif len(self._head) > _LONGEST_HEAD:
            self._hand_on()

    def _hand_on(self) -> None:
        transport = self._connected()
        protocol = self._server()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(self._head)

    def _upgrade(self, head: Head, rest: bytes) -> None:
        transport = self._connected()
        # Reading resumes when the handler takes over: no byte may reach this protocol in between.
        transport.pause_reading()
        task = asyncio.ensure_future(self._on_upgrade(head, transport, rest))
        task.add_done_callback(lambda _: transport.close())

    def _connected(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport


class UpgradedConnection:
    """An upgraded connection; every byte, in either direction, resets the idle timer.

    Args:
      transport: The connection, which is paused.
      rest: Bytes that have been received already.
      idle: Cuts the connection when it is not used.
    """

    def __init__(self, transport: asyncio.Transport, rest: bytes, idle: IdleTimer) -> None:
        loop = asyncio.get_running_loop()
        self._idle = idle
        self._reader = asyncio.StreamReader(limit=4 * CHUNK, loop=loop)
        protocol = asyncio.StreamReaderProtocol(self._reader, loop=loop)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if rest:
            protocol.data_received(rest)
        transport.resume_reading()
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)

    async def receive(self) -> bytes:
        """Receive from the client; empty once it is gone."""
        data = await self._reader.read(CHUNK)
        self._idle.touch()
        return data

    async def send(self, data: bytes) -> None:
        """Send `data`, and wait until the client has taken enough of it."""
        self._idle.touch()
        self._writer.write(data)
        await self._writer.drain()


def accept_upgrade(protocol: str) -> bytes:
    """The response that switches a connection to SPDY."""
    return (
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        f"X-Stream-Protocol-Version: {protocol}\r\n\r\n"
    ).encode()


def refuse_upgrade(error: StatusError) -> bytes:
    """The response that refuses an upgrade."""
    body = encode(error.to_object())
    head = (
        f"HTTP/1.1 {error.status} {error.reason}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _read_head(data: bytes) -> Head | None:
    lines = data.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3:
        return None
    target = urllib.parse.urlsplit(words[1])
    headers: CIMultiDict[str] = CIMultiDict()
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers.add(name.strip(), value.strip())
    query = MultiDict(urllib.parse.parse_qsl(target.query, keep_blank_values=True))
    return Head(words[0], urllib.parse.unquote(target.path), query, headers)
