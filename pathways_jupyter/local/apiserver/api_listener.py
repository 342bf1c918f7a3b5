"""Accepts the API's connections, and drops those that do not present a token in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import Any

from aiohttp import web

from pathways_jupyter.local.connection_bounds import Newcomer, Newcomers

PROOF_SECONDS = 32.0
"""Longest time for the TLS handshake and the head of the first request together; a real API server allows as much for a
head."""
MOST_NEWCOMERS = 256

_ACCEPT_RETRY_SECONDS = 0.05
_OPTIONS: dict[str, Any] = {
    "access_log": None,
    # Like the real API server, which does not decompress a body, and then finds that it is not JSON.
    "auto_decompress": False,
    "keepalive_timeout": 3600.0,
}
_log = logging.getLogger(__name__)


class Connection(web.RequestHandler):
    """A connection over HTTP, which is counted as a newcomer's until a request on it carries a valid token."""

    __slots__ = ("_newcomer",)

    def __init__(self, server: web.Server, newcomer: Newcomer) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **_OPTIONS)
        self._newcomer = newcomer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection instead of its handshake."""
        super().connection_made(transport)
        assert self.transport is not None
        self._newcomer.drop = self.transport.abort

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop counting the connection."""
        self._newcomer.leave()
        super().connection_lost(exc)

    def authenticated(self) -> None:
        """Stop counting the connection, so that it may stay open for as long as it likes."""
        self._newcomer.leave()


class Listener:
    """Accepts TLS connections on a port of 127.0.0.1.

    `asyncio`'s own server does not report a connection before its handshake is complete, so one that never completes it
    could not be counted.

    Args:
      server: Handles the requests.
    """

    def __init__(self, port: int, context: ssl.SSLContext, server: web.Server) -> None:
        self._context = context
        self._server = server
        self.newcomers = Newcomers(most=MOST_NEWCOMERS, seconds=PROOF_SECONDS)
        self._handshakes: set[asyncio.Task[None]] = set()
        self._socket = socket.socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setblocking(False)
            self._socket.bind(("127.0.0.1", port))
            self._socket.listen(1024)
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Stop listening, and drop the connections that have not authenticated."""
        self._accepting.cancel()
        self.newcomers.drop_all()
        await asyncio.gather(self._accepting, *self._handshakes, return_exceptions=True)
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:
                # Most likely no file descriptor is left: free those of connections without a token.
                _log.warning("A connection cannot be accepted: %s", error)
                self.newcomers.drop_all()
                await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            task = asyncio.create_task(self._handshake(connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, connection: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        newcomer = self.newcomers.add(task.cancel)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: Connection(self._server, newcomer), connection, ssl=self._context
                )
                return
            newcomer.leave()
        except asyncio.CancelledError:
            newcomer.leave()
            raise
        connection.close()
