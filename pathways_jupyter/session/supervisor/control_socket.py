"""Server side of the session protocol: read requests from connections and write answers.

Requests of one connection are handled concurrently, so that ``disconnect`` is received while ``start`` is under way.

What a client can make the supervisor remember is bounded: nothing more is read from a connection while too many of its
requests are being handled, or while its answers are not being read.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pathways_jupyter.base import json_lines
from pathways_jupyter.base.errors import PathwaysError, SessionError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Running
from pathways_jupyter.session import protocol
from pathways_jupyter.session.protocol import Method, Request, Response

logger = logging.getLogger(__name__)

MAX_CONCURRENT_REQUESTS = 32
BUG_HINT = advice("This is a bug in pathways_jupyter; see the supervisor's log: {logs:supervisor}.")


class ControlConnection:
    """One client of the supervisor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._asked: dict[int, asyncio.Future[Response]] = {}
        self._ids = itertools.count(1)

    async def ask(self, method: Method, *, patience: float, **params: Any) -> Any:
        """Send the other end a request, and return its answer; None without one after `patience` seconds."""
        number, loop = next(self._ids), asyncio.get_running_loop()
        asked = self._asked[number] = loop.create_future()
        try:
            self.writer.write(protocol.encode(Request(number, method, params)))
            return (await asyncio.wait_for(asked, patience)).result
        except (OSError, TimeoutError):
            return None
        finally:
            del self._asked[number]

    def take(self, answer: Response) -> None:
        """Handle an answer of the other end; one that comes too late is dropped."""
        asked = self._asked.get(answer.id)
        if asked is not None and not asked.done():
            asked.set_result(answer)

    def answer(self, answer: Response) -> None:
        """Send `answer`, unless the client is gone."""
        if not self.writer.is_closing():
            self.writer.write(protocol.encode(answer))

    async def close(self) -> None:
        """Flush what was written, for a second at most, and close the connection."""
        self.writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self.writer.wait_closed()


Handler = Callable[[Request, ControlConnection], Awaitable[Any]]


async def converse(connection: ControlConnection, handle: Handler) -> None:
    """Answer the requests of `connection` until its other end closes."""
    running = Running()
    try:
        while line := await connection.reader.readline():
            try:
                message = protocol.decode(line)
            except SessionError as error:
                connection.answer(Response(0, error=error))
            else:
                if isinstance(message, Request):
                    running.begin(_respond(message, connection, handle))
                elif isinstance(message, Response):
                    connection.take(message)
            # Back-pressure: both waits come before the next line is read, so a client that sends faster than it reads
            # is blocked by its own socket, and the supervisor's memory stays bounded.
            await connection.writer.drain()
            if len(running) >= MAX_CONCURRENT_REQUESTS:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    except (OSError, ValueError) as error:
        # A line beyond the limit, or a reset connection: either way no answer can be delivered.
        logger.info("connection ended: %s", error)
    finally:
        # Their answers have no receiver any more. What must not be cut short is shielded where it is awaited.
        for task in list(running):
            task.cancel()


async def listen(path: Path, handle: Handler, left: Callable[[ControlConnection], None]) -> asyncio.Server:
    """Serve the control socket at `path`.

    Args:
      left: Called with each connection once it has ended.
    """

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ControlConnection(reader, writer)
        try:
            await converse(connection, handle)
        finally:
            left(connection)
            await connection.close()

    # The socket must never be accessible to other users, not even between bind() and a chmod().
    previous = os.umask(0o177)
    try:
        return await asyncio.start_unix_server(connected, path, limit=json_lines.MAX_BYTES)
    finally:
        os.umask(previous)


async def _respond(request: Request, connection: ControlConnection, handle: Handler) -> None:
    try:
        answer = Response(request.id, result=await handle(request, connection))
    except PathwaysError as error:
        answer = Response(request.id, error=error)
    except Exception as error:
        logger.exception("%s failed", request.method)
        problem = SessionError(
            f"The supervisor failed to handle {request.method}: {type(error).__name__}: {error}",
            hint=BUG_HINT,
        )
        answer = Response(request.id, error=problem)
    connection.answer(answer)
