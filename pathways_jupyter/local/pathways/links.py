"""The connections between resource manager, workers and proxies: JSON objects, one a line.

Both ends say something every few seconds, so that each notices a peer that is there but does nothing; one whose
process ended is noticed at once, because its connection drops.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pathways_jupyter.local.newcomers import Newcomer, Newcomers
from pathways_jupyter.local.pathways import addresses

_log = logging.getLogger(__name__)

Message = dict[str, Any]

HEARTBEAT_SECONDS = 2.0
SILENCE_SECONDS = 15.0
"""Silence after which the other side counts as gone. Long, because a laptop can be very busy."""

_LINE = 1 << 20
_MOST_UNREAD = 4 << 20
"""Bytes that may wait for the other side; one that reads nothing is as good as gone."""
_MOST_NEWCOMERS = 64
_FIRST_RETRY, _LAST_RETRY = 0.1, 2.0


class LinkError(Exception):
    """The other side went away, fell silent, or said something that is no message."""


class Link:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._beating = asyncio.create_task(self._beat())

    def send(self, kind: str, **fields: Any) -> None:
        """Sends a message; whether it arrives shows in :meth:`messages`, which ends when it cannot."""
        if self._writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            self._writer.transport.abort()
        if not self._writer.is_closing():
            self._writer.write(json.dumps({"type": kind, **fields}).encode() + b"\n")

    async def receive(self) -> Message:
        """The next message that is not a heartbeat.

        Raises:
          LinkError: There will be none.
        """
        while True:
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    line = await self._reader.readline()
                if not line.endswith(b"\n"):
                    raise LinkError("the connection was closed")
                message = dict(json.loads(line))
                if message["type"] != _BEAT:
                    return message
            except TimeoutError:
                raise LinkError(f"silent for {SILENCE_SECONDS:g} s") from None
            except OSError as error:
                raise LinkError(str(error)) from error
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise LinkError(f"not a message: {error}") from error

    async def messages(self) -> AsyncIterator[Message]:
        """All messages until the other side goes; the reason is logged by whom it concerns."""
        while True:
            yield await self.receive()

    async def close(self) -> None:
        """Closes the connection, with what was sent still going out."""
        self._beating.cancel()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            self.send(_BEAT)


async def dial(address: str) -> Link:
    """Connects to ``host:port``, trying until somebody is there: programs of a cluster start in any order."""
    host, port = addresses.split(address)
    delay = _FIRST_RETRY
    told = False
    while True:
        try:
            ip = await asyncio.to_thread(addresses.resolve, host)
            return Link(*await asyncio.open_connection(ip, port, limit=_LINE))
        except OSError as error:
            if not told:
                _log.info("Waiting for %s: %s", address, error)
                told = True
        await asyncio.sleep(delay)
        delay = min(2 * delay, _LAST_RETRY)


async def listen(port: int, accept: Callable[[Link, Newcomer], Awaitable[None]]) -> asyncio.Server:
    """Listens on a port of this pod; `accept` gets a :class:`Link` for each connection.

    Everybody on the machine can connect, so `accept` must call ``leave`` of the second argument once the other side has
    proved that it belongs here: of those that have not, few are kept, and none for long.

    Raises:
      OSError: The port is taken.
    """

    newcomers = Newcomers(most=_MOST_NEWCOMERS, seconds=SILENCE_SECONDS)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link, newcomer = Link(reader, writer), newcomers.add(writer.transport.abort)
        try:
            await accept(link, newcomer)
        finally:
            newcomer.leave()
            await link.close()

    return await asyncio.start_server(connected, addresses.own(), port, limit=_LINE)


_BEAT = "beat"
