"""Whole messages over a WebSocket through the API server, with bounded buffers in both directions.

The `kubernetes` package's stream client gives the connection; this module adds the errors, notices a server that has
stopped answering, and measures how fast long transfers went.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from pathways_jupyter.base.errors import ConnectionLost
from pathways_jupyter.kube.clock import RoundTrip, boot_seconds
from pathways_jupyter.kube.problems import lost

if TYPE_CHECKING:
    from pathways_jupyter.kube.library import Sent, Socket

PING_SECONDS = 1.6
"""Time between pings."""
UNANSWERED_PINGS = 5
"""After so many pings in a row without an answer a server is dead: noticed within 10 s, and a pause of 8 s is none.

Wi-Fi stalls for six, and what waits in a router's queue comes after that. More than one, because a process that was
stopped for a while finds its timer expired before it reads the answer. A ping does not count while what was sent is
acknowledged: on a slow connection its answer comes behind all of that. What a proxy on the way has acknowledged may
not have arrived, however; while it drains, :class:`AnswerPoints` make the server answer.
"""
CLOSE_SECONDS = 2.0
"""Longest wait for the server when closing."""
_LARGE_BYTES = 32 * 1024
"""Size from which on a message is a part of a transfer."""
_LEAST_BYTES = 4 * 1024 * 1024
"""Shorter transfers show how fast TCP begins, and what fits into buffers."""
_IDLE_BYTES = 16 * 1024
"""So little waits for an acknowledgement while only small messages are under way."""
_LOOK_SECONDS = 0.02
"""Time between two looks into the kernel, which cost more than a message on a fast network."""
_PROPER_CODES = {0, 1000, 1001}
_CHECKPOINT_BYTES = 128 * 1024
"""Usually one message. At half a megabit a second 256 kB take four seconds, half of what a dead connection may."""
_CHECKPOINTS_AT_ONCE = 64
"""Enough for 8 MB, more than proxies and kernels buffer."""
_CHECKPOINTS_PER_SECOND = 32.0
"""On a fast network an answer for each message would cost a tenth of the rate."""
_ASKED_AT = struct.Struct("!d")
"""Payload of a ping that follows data; others have none, and measure a round trip."""


class AnswerPoints:
    """Points between data at which the sender asks for an answer, so that a slow connection is never silent for long.

    A proxy or a router acknowledges megabytes that it has only buffered. A ping that is sent later is behind all of
    them, and its answer may take longer than a dead server is waited for. With a question between the data, answers
    come for as long as the buffer drains, and a connection without any is dead.
    """

    def __init__(self) -> None:
        self._size = 0
        self._left, self._counted = float(_CHECKPOINTS_AT_ONCE), boot_seconds()

    def passed(self, size: int) -> bool:
        """Return whether to ask for an answer after the next `size` bytes."""
        self._size += size
        if self._size < _CHECKPOINT_BYTES:
            return False
        now = boot_seconds()
        gained = _CHECKPOINTS_PER_SECOND * (now - self._counted)
        self._left, self._counted = min(_CHECKPOINTS_AT_ONCE, self._left + gained), now
        if self._left < 1:
            return False
        self._size, self._left = 0, self._left - 1
        return True


class UploadRate:
    """The rate at which the network took the last long transfer of any of a client's connections.

    Nothing is sent to measure it: a short transfer, such as a probe would be, ends while TCP is still becoming faster.

    Attributes:
      bytes_per_second: 0 while there was none. As fast as the network where that is what the sender waited for.
      measured: When, in seconds since the epoch.
    """

    def __init__(self) -> None:
        self.bytes_per_second = 0.0
        self.measured = 0.0


class _Transfer:
    """Messages of one connection, from when it last had nothing to send.

    Without Linux the kernel does not say how many bytes were acknowledged, so that no transfer is long enough.

    Args:
      rate: Where the rate is kept.
    """

    def __init__(self, socket: Socket, rate: UploadRate) -> None:
        self._socket = socket
        self._rate = rate
        self._looked = 0.0
        self._began: tuple[float, Sent] | None = None

    def before_message(self) -> None:
        """Measure what was acknowledged until now, when another large message is about to be sent."""
        now = boot_seconds()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked, sent = now, self._socket.sent()
        if self._began is None or sent.waiting < _IDLE_BYTES:
            self._began = now, sent
            return
        began, first = self._began
        if (taken := sent.acknowledged - first.acknowledged) >= _LEAST_BYTES:
            self._rate.bytes_per_second, self._rate.measured = taken / (now - began), time.time()


class WebSocket:
    """A WebSocket; iterate over it for the messages, in one task only.

    Iterating ends when the server closes the connection properly, or after :meth:`close`, and raises `ConnectionLost`
    when the connection ends in another way.

    Args:
      socket: The open connection.
      ended: Called once, when the connection has ended.
      silent: Called when the server has stopped answering.
      round_trip: Where to count how long pings take.
      upload_rate: Where to keep the rate of long transfers.
    """

    def __init__(
        self,
        socket: Socket,
        ended: Callable[[], None],
        silent: Callable[[], None],
        round_trip: RoundTrip,
        upload_rate: UploadRate,
    ) -> None:
        self._socket = socket
        self._ended = ended
        self._silent = silent
        self._round_trip = round_trip
        self._transfer = _Transfer(socket, upload_rate)
        self._checkpoints = AnswerPoints()
        self._pinged = 0.0
        self._loop = asyncio.get_running_loop()
        self._closing: asyncio.Task[None] | None = None
        self._error: ConnectionLost | None = None
        # Whether something has arrived since the last ping, and whether the reader is waiting for more.
        self._received = True
        self._waiting = False
        self._pinging: asyncio.Task[None] | None = self._loop.create_task(self._ping())

    def sent(self) -> Sent:
        """Return how much of what was sent the other end has taken."""
        return self._socket.sent()

    async def send(self, *parts: bytes | memoryview) -> None:
        """Send one binary message, made of `parts`; wait while the write buffer is full.

        Args:
          parts: Must not change afterwards.

        Raises:
          ConnectionLost: The connection has ended.
        """
        if len(parts[-1]) >= _LARGE_BYTES:
            self._transfer.before_message()
        try:
            await self._socket.send_parts(*parts)
            if self._checkpoints.passed(len(parts[-1])):
                await self._socket.ping(_ASKED_AT.pack(boot_seconds()))
        except (OSError, RuntimeError) as error:
            raise self._error or lost("the server closed it") from error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        from aiohttp import WSMsgType

        try:
            while True:
                # A reader that has just begun to wait, after work on the last message, says nothing about the server.
                self._received = self._waiting = True
                try:
                    message = await self._socket.receive()
                finally:
                    self._received, self._waiting = True, False
                if message.type is WSMsgType.PONG:
                    self._answered(message.data)
                if message.type is WSMsgType.BINARY:
                    yield message.data
                elif message.type is WSMsgType.PING:
                    # Where the connection has ended, the next read reports it.
                    with contextlib.suppress(OSError, RuntimeError):
                        await self._socket.pong(message.data)
                elif message.type not in {WSMsgType.PONG, WSMsgType.TEXT}:
                    break
        finally:
            # However it ended: nothing is read any more.
            self._stop_pings()
        if self._error is not None:
            raise self._error
        if message.type is WSMsgType.CLOSE:
            if message.data not in _PROPER_CODES:
                raise self._fail(f"the server closed it with code {message.data} {message.extra or ''}".rstrip())
        elif message.type is WSMsgType.ERROR:
            raise self._fail(f"it sent an invalid frame ({message.data})")
        elif self._closing is None:
            raise self._fail("it ended without a close frame")

    def _answered(self, payload: bytes) -> None:
        if len(payload) == _ASKED_AT.size:
            if boot_seconds() - _ASKED_AT.unpack(payload)[0] > PING_SECONDS:
                self._round_trip.waited_at = boot_seconds()
        elif self._pinged:
            self._round_trip.add(self._pinged)
            self._pinged = 0.0

    def close(self) -> None:
        """Close the connection behind all earlier messages; a server that does not answer is not waited for long."""
        if self._closing is None:
            self._stop_pings()
            self._closing = self._loop.create_task(self._close())

    def abort(self) -> None:
        """Drop the connection at once, as a network does that fails; reading from it raises ConnectionLost."""
        self._socket.abort()

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._socket.close()
        except TimeoutError:
            pass
        finally:
            # A stalled server would keep unsent bytes, and so the connection, for ever.
            self._socket.abort()
            self._ended()

    async def _ping(self) -> None:
        await asyncio.sleep(PING_SECONDS)
        unanswered = 0
        while unanswered < UNANSWERED_PINGS:
            self._received, before, asked = False, self._socket.sent(), boot_seconds()
            try:
                async with asyncio.timeout(PING_SECONDS):
                    # It waits while the write buffer is full, which must not delay the judgement.
                    # An answer that is still to come belongs to the ping before.
                    self._pinged = 0.0 if self._pinged else boot_seconds()
                    await self._socket.ping()
                    await self._loop.create_future()
            except TimeoutError:
                pass
            except (OSError, RuntimeError):
                # The connection has ended, which the reader reports.
                return
            # While the reader is busy, a pong cannot arrive; that says nothing about the server. And behind the data of
            # another connection, which has the same line, it comes late.
            alive = self._received or not self._waiting or self._round_trip.waited_at > asked
            alive = alive or self._socket.sent().moves_since(before)
            unanswered = 0 if alive else unanswered + 1
        self._fail("the server stopped answering")
        self._silent()
        self._socket.abort()

    def _fail(self, problem: str) -> ConnectionLost:
        self._error = self._error or lost(problem)
        return self._error

    def _stop_pings(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
            self._pinging = None
