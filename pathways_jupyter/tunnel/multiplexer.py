"""Many connections on one stream, so that each further one costs no handshake with the API server.

A frame is a header of 9 bytes and what follows: its kind, the number of the channel, and how many bytes follow. One end
opens channels, the other one accepts them; both may post messages (JSON objects), which belong to no channel. A channel
has a window: its sender may be so far ahead of its receiver, so that what one channel has on the way never keeps the
others waiting for long, and a receiver that is slow stops its own channel alone.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from pathways_jupyter.base.errors import ClusterError, ConnectionLost
from pathways_jupyter.base.tasks import Backoff

WINDOW_BYTES = 1024 * 1024
"""Most bytes of a channel on the way: 10 MB/s at 100 ms, and 0.4 s of a line of 20 Mbit/s."""
QUEUED_BYTES = 1024 * 1024
"""Bytes that wait for the window before a sender has to; a program whose messages must not be lost takes more."""

_HEADER = struct.Struct(">BII")
_OPEN, _DATA, _CREDIT, _CLOSE, _MESSAGE = range(1, 6)
_CREDIT_BYTES = struct.Struct(">I")
_PIECE_BYTES = 64 * 1024
_LONGEST_FRAME = 64 * 1024 * 1024
_DRAIN_SECONDS = 0.01

Send = Callable[[bytes], Awaitable[None]]


class StreamChannel:
    """One connection, with the attributes and methods of a carrier.

    Attributes:
      answered: Set once data has arrived, or the channel has ended.
      ended: Whether nothing more arrives.
      error: Why it ended; None while it is open, or when it was closed.
      before: Awaited with bytes before they are sent.
    """

    def __init__(self, channels: Multiplexer, number: int) -> None:
        self.answered = asyncio.Event()
        self.ended = False
        self.error: ClusterError | None = None
        self.before: Callable[[bytes], Awaitable[None]] | None = None
        self._channels = channels
        self._number = number
        self._arrived: deque[memoryview] = deque()
        self._news = asyncio.Event()
        self._out: deque[memoryview] = deque()
        self._queued = self._taken = 0
        self._credit = WINDOW_BYTES
        self._room = asyncio.Event()
        self._closing = self._said_close = False

    @property
    def has_data(self) -> bool:
        """Return whether data has arrived that nothing has taken yet."""
        return bool(self._arrived)

    async def send(self, data: bytes) -> None:
        """Send bytes; wait while many wait already.

        Raises:
          ConnectionLost: The channel has ended.
        """
        if self.before is not None:
            await self.before(data)
        if self.ended:
            raise self.error or ConnectionLost("The connection was closed at its other end.")
        self._out.append(memoryview(data))
        self._queued += len(data)
        self._channels._wake(self)
        while self._queued > self._channels.queued_bytes and not self.ended:
            self._room.clear()
            await self._room.wait()

    async def deliver(self, write: Callable[[memoryview], Awaitable[None]]) -> None:
        """Give `write` all data; return when no more comes."""
        while True:
            while self._arrived:
                piece = self._arrived.popleft()
                await write(piece)
                self._taken += len(piece)
                if self._taken >= WINDOW_BYTES // 4:
                    self._channels._wake(self)
            if self.ended:
                return
            self._news.clear()
            await self._news.wait()

    def close(self) -> None:
        """Close the channel, once what was sent before is on its way."""
        self._closing = True
        self._arrived.clear()
        self._channels._wake(self)

    def _receive(self, kind: int, data: memoryview) -> None:
        if kind == _DATA and not self._closing:
            self._arrived.append(data)
        elif kind == _CREDIT:
            self._credit += _CREDIT_BYTES.unpack(data)[0]
            self._channels._wake(self)
        elif kind == _CLOSE:
            self._end(None)
            self._channels._wake(self)
        self.answered.set()
        self._news.set()

    def _end(self, error: ClusterError | None) -> None:
        """End what arrives; its other end reads no more either."""
        self.ended, self.error = True, error
        self._out.clear()
        self._queued = 0
        for event in (self.answered, self._news, self._room):
            event.set()

    def _next(self) -> bytes | None:
        """Return the next frame to send; None while there is none."""
        if self._taken >= WINDOW_BYTES // 4 and not self.ended:
            taken, self._taken = self._taken, 0
            return _frame(_CREDIT, self._number, _CREDIT_BYTES.pack(taken))
        if self._out and self._credit:
            piece = self._out.popleft()
            size = min(len(piece), self._credit, _PIECE_BYTES)
            if size < len(piece):
                self._out.appendleft(piece[size:])
            self._credit -= size
            self._queued -= size
            if self._queued <= self._channels.queued_bytes:
                self._room.set()
            return _frame(_DATA, self._number, piece[:size])
        if (self._closing or self.ended) and not self._out and not self._said_close:
            self._said_close = True
            return _frame(_CLOSE, self._number)
        return None

    @property
    def _is_over(self) -> bool:
        return self.ended and self._said_close


class Multiplexer:
    """One end of a stream that carries channels.

    Args:
      send: Sends bytes on the stream; waits while it is full.
      accept: Called with each channel that the other end opens, and what it asks for.
      take: Called with each message of the other end.
      first: Number of the first channel that it opens, 1 or 2: every other number belongs to the other end.
      queued_bytes: Of each channel; see :data:`QUEUED_BYTES`.
    """

    def __init__(
        self,
        send: Send,
        *,
        accept: Callable[[StreamChannel, dict[str, Any]], None] | None = None,
        take: Callable[[dict[str, Any]], None] | None = None,
        first: int = 1,
        queued_bytes: int = QUEUED_BYTES,
    ) -> None:
        self.queued_bytes = queued_bytes
        self._send = send
        self._accept, self._on_message = accept, take
        self._channels: dict[int, StreamChannel] = {}
        self._last = first - 2
        self._first: deque[bytes] = deque()
        self._ready: dict[StreamChannel, None] = {}
        self._work = asyncio.Event()
        self._head = bytearray()
        self._error: ClusterError | None = None
        self._pumping = asyncio.create_task(self._pump())

    @property
    def is_open(self) -> bool:
        """Return whether it can still carry anything."""
        return self._error is None

    def open(self, request: Mapping[str, Any]) -> StreamChannel:
        """Open a channel to what `request` names; that there is no such thing shows as its end.

        Raises:
          ClusterError: The stream has ended.
        """
        if self._error is not None:
            raise self._error
        self._last += 2
        channel = self._channels[self._last] = StreamChannel(self, self._last)
        self._say(_OPEN, self._last, request)
        return channel

    def post(self, message: Mapping[str, Any]) -> None:
        """Send a message; no-op once the stream has ended."""
        self._say(_MESSAGE, 0, message)

    def feed(self, data: bytes | memoryview) -> None:
        """Take in bytes of the stream.

        Raises:
          ConnectionLost: They are no frames, so that nothing of what follows can be understood.
        """
        self._head += data
        while len(self._head) >= _HEADER.size:
            kind, number, length = _HEADER.unpack_from(self._head)
            if not _OPEN <= kind <= _MESSAGE or length > _LONGEST_FRAME:
                raise ConnectionLost("The two ends of the stream run different versions of pathways_jupyter.")
            if len(self._head) < _HEADER.size + length:
                return
            body = memoryview(bytes(self._head[_HEADER.size : _HEADER.size + length]))
            del self._head[: _HEADER.size + length]
            self._take(kind, number, body)

    async def close(self, error: ClusterError | None = None) -> None:
        """End every channel, because of `error` if there is one."""
        self._error = self._error or error or ConnectionLost("The stream was closed.")
        for channel in self._channels.values():
            channel._end(error)
        self._channels.clear()
        self._pumping.cancel()
        await asyncio.wait({self._pumping})

    async def drain(self, channels: Collection[StreamChannel]) -> None:
        """Return when all data of these channels is on its way, or the stream has ended."""
        async for _ in Backoff(_DRAIN_SECONDS, _DRAIN_SECONDS):
            if not self.is_open or not any(each._out for each in channels):
                return

    def _take(self, kind: int, number: int, body: memoryview) -> None:
        if kind == _MESSAGE:
            if self._on_message is not None:
                self._on_message(json.loads(bytes(body)))
        elif kind == _OPEN:
            channel = self._channels[number] = StreamChannel(self, number)
            if self._accept is not None:
                self._accept(channel, json.loads(bytes(body)))
        elif (known := self._channels.get(number)) is not None:
            known._receive(kind, body)
            self._forget(known)

    def _forget(self, channel: StreamChannel) -> None:
        if channel._is_over:
            self._channels.pop(channel._number, None)

    def _say(self, kind: int, number: int, value: Mapping[str, Any]) -> None:
        if self._error is None:
            self._first.append(_frame(kind, number, json.dumps(value, separators=(",", ":")).encode()))
            self._work.set()

    def _wake(self, channel: StreamChannel) -> None:
        self._ready[channel] = None
        self._work.set()

    async def _pump(self) -> None:
        """Send what there is: messages first, then a piece of each channel in turn."""
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                while self._first or self._ready:
                    if self._first:
                        await self._send(self._first[0])
                        self._first.popleft()
                        continue
                    channel = next(iter(self._ready))
                    del self._ready[channel]
                    if (frame := channel._next()) is not None:
                        # Again after the others; a channel without credit is woken by its credit.
                        self._ready[channel] = None
                        await self._send(frame)
                    self._forget(channel)
            except (ClusterError, OSError) as error:
                # The reader of the stream knows the reason, and closes this.
                self._error = error if isinstance(error, ClusterError) else ConnectionLost(str(error))
                return


def _frame(kind: int, number: int, data: bytes | memoryview = b"") -> bytes:
    return b"".join((_HEADER.pack(kind, number, len(data)), data))
