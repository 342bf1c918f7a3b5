"""The connection of a local program: what it sends and receives, with back-pressure both ways.

asyncio's streams copy every byte into their buffer and out of it again. Arrays pass here, so a piece is passed on as
the object into which it was read.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

READ_BYTES = 256 * 1024
"""Bytes that may wait to be read before the local program has to wait; one more piece may arrive with the last ones."""
WRITE_BUFFER_BYTES = 512 * 1024
"""Bytes buffered for a local program that reads slowly."""

_SMALL_BYTES = 32 * 1024
_EARLY_BYTES = 256 * 1024


class Inbox:
    """Bytes for a local program: a little is kept until there is one, and more makes the sender wait.

    Attributes:
      is_waiting: Whether the local program is being waited for, be it slow or not there yet.
    """

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self._write: asyncio.Future[Callable[[memoryview], Awaitable[None]]]
        self._write = asyncio.get_running_loop().create_future()
        self.is_waiting = False

    async def put(self, piece: memoryview) -> None:
        """Pass on a piece; it is not lost if the caller is cancelled meanwhile. Must not change afterwards."""
        self.is_waiting = True
        try:
            # Later pieces go straight through; only what comes before the local program is kept.
            if self._write.done():
                await self._write.result()(piece)
                return
            self._pieces.append(piece)
            if sum(map(len, self._pieces)) > _EARLY_BYTES:
                # Shielded, because others may wait for it too.
                await asyncio.shield(self._write)
        finally:
            self.is_waiting = False

    async def open(self, write: Callable[[memoryview], Awaitable[None]]) -> None:
        """Give `write` what has arrived already, and all that follows.

        The next piece is not taken before `write` returns, so that TCP makes the sender wait for a slow program.
        """
        while self._pieces:
            await write(self._pieces.popleft())
        # No await since the last look at the pieces, so none can overtake another.
        if not self._write.done():
            self._write.set_result(write)

    def discard(self) -> None:
        """Drop what arrives from now on, if there is no local program."""
        if not self._write.done():
            self._write.set_result(_drop)


async def _drop(_piece: memoryview) -> None:
    """Take what is not read any more."""


class LocalConnection(asyncio.Protocol):
    """One local connection; one task may read, and one may write.

    Args:
      accepted: Called with this object when the connection is there.
    """

    def __init__(self, accepted: Callable[[LocalConnection], None]) -> None:
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._paused = self._ended = False
        self._error: Exception | None = None
        # Held while a task waits for the next piece.
        self._arrival: asyncio.Future[None] | None = None
        # An event and not a future: the task that waits may be cancelled, and another one may write after it.
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def read(self) -> bytes:
        """Return what arrived next, as soon as there is something; empty at the end.

        Raises:
          ConnectionError: The local program has reset the connection.
        """
        while not self._pieces and not self._ended:
            self._arrival = self._loop.create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None
        if not self._pieces:
            if self._error is not None:
                raise ConnectionResetError(str(self._error)) from self._error
            return b""
        if len(self._pieces[0]) >= _SMALL_BYTES:
            data = self._pieces.popleft()
        else:
            # A message for each of many small pieces would cost more than the copy.
            data = b"".join(self._pieces)
            self._pieces.clear()
        self._size -= len(data)
        if self._paused and self._size < READ_BYTES and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: memoryview) -> None:
        """Send `data`, which must not change afterwards, to the local program; wait while it reads slowly.

        Raises:
          ConnectionError: The local program has closed the connection.
        """
        if self._transport.is_closing():
            raise ConnectionResetError("The local program has closed the connection")
        self._transport.write(data)
        await self._has_room.wait()

    async def end(self, *, broken: bool) -> None:
        """End the connection once everything was sent, or break it at once.

        Args:
          broken: Whether something may be missing: the local program must not take a short answer for a complete one.
        """
        if not broken:
            self._transport.close()
            return
        connection = self._transport.get_extra_info("socket")
        if connection is not None and connection.family != socket.AF_UNIX:
            # Linger of zero seconds: closing sends a TCP reset.
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        # uvloop's transports behave as asyncio's, but are not of its types.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family == socket.AF_UNIX:
            # Usually less than a message, so that most were written in two parts; TCP's buffers grow by themselves.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WRITE_BUFFER_BYTES)
        self._accepted(self)

    def data_received(self, data: bytes) -> None:
        """Keep a piece for the reader; pause the local program when there are enough."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= READ_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> bool:
        """Note the end of what the local program sends; it may still read."""
        self._ended = True
        self._wake_reader()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """Note the end in both directions."""
        self._ended = True
        self._error = error
        self._wake_reader()
        # A writer that waits would wait for ever; it finds the end with its next piece.
        self._has_room.set()

    def pause_writing(self) -> None:
        """Make the writer wait."""
        self._has_room.clear()

    def resume_writing(self) -> None:
        """Let the writer continue."""
        self._has_room.set()

    def _wake_reader(self) -> None:
        # Done already when it was cancelled.
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
