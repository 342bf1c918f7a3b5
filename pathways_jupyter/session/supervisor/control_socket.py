"""The server side of the session protocol: reads requests from connections, and writes answers.

Requests of one connection are handled concurrently, so that ``disconnect`` is received while ``start`` is under way.

What a client can make the supervisor remember is bounded: nothing more is read from a connection while too many of its
requests are being handled, or while its answers are not being read. One that goes on not reading is closed; the owner's
is not, because that would end the session of a kernel that was only stopped for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pathways_jupyter.errors import PathwaysError, SessionError
from pathways_jupyter.session import protocol
from pathways_jupyter.session.protocol import Answer, Request

logger = logging.getLogger(__name__)

MAX_CONCURRENT_REQUESTS = 32
STALLED_SECONDS = 30.0
"""How long a client may leave its answers unread."""


class Connection:
    """One client of the supervisor.

    Args:
      owner: Whether it is the connection of the kernel that the session belongs to.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, owner: bool = False) -> None:
        self.reader = reader
        self.writer = writer
        self.owner = owner

    def answer(self, answer: Answer) -> None:
        """Sends `answer`, unless the client is gone."""
        if not self.writer.is_closing():
            self.writer.write(protocol.encode(answer))

    async def until_read(self) -> None:
        """Wait until the client has read enough of its answers.

        Raises:
          TimeoutError: It does not read them, and is not the owner.
          OSError: It is gone.
        """
        async with asyncio.timeout(None if self.owner else STALLED_SECONDS):
            await self.writer.drain()

    async def close(self) -> None:
        """Closes the connection after what was written has left."""
        self.writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self.writer.wait_closed()


Handler = Callable[[Request, Connection], Awaitable[Any]]


async def converse(connection: Connection, handle: Handler) -> None:
    """Answers the requests of `connection` until its other end closes."""
    tasks: set[asyncio.Task[None]] = set()
    try:
        while line := await connection.reader.readline():
            try:
                message = protocol.decode(line)
            except SessionError as error:
                connection.answer(Answer(0, error=error))
            else:
                if isinstance(message, Request):
                    task = asyncio.create_task(_respond(message, connection, handle))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            # Both before the next line is read: that is what makes the client wait, and not the supervisor grow.
            await connection.until_read()
            if len(tasks) >= MAX_CONCURRENT_REQUESTS:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError:
        logger.warning("a client has not read its answers for %.0f s, and is disconnected", STALLED_SECONDS)
        # Closing would wait until what was written has been read.
        connection.writer.transport.abort()
    except (OSError, ValueError) as error:
        # A line beyond the limit, or a connection that was reset: either way there is nobody to answer.
        logger.info("connection ended: %s", error)
    finally:
        for task in list(tasks):
            task.cancel()


async def listen(path: Path, handle: Handler, left: Callable[[Connection], None]) -> asyncio.Server:
    """Serves the control socket at `path`.

    Args:
      left: Called with each connection that ended.
    """

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        try:
            await converse(connection, handle)
        finally:
            left(connection)
            await connection.close()

    previous = os.umask(0o177)
    try:
        return await asyncio.start_unix_server(connected, path, limit=protocol.MAX_LINE)
    finally:
        os.umask(previous)


async def _respond(request: Request, connection: Connection, handle: Handler) -> None:
    try:
        answer = Answer(request.id, result=await handle(request, connection))
    except PathwaysError as error:
        answer = Answer(request.id, error=error)
    except Exception as error:
        logger.exception("%s failed", request.method)
        problem = SessionError(
            f"The supervisor failed at {request.method}: {type(error).__name__}: {error}",
            hint="This is a fault of pathways_jupyter; its log tells more: %pathways logs supervisor.",
        )
        answer = Answer(request.id, error=problem)
    connection.answer(answer)
