"""WebSocket client (RFC 6455) for tunnels: passes on data as it arrives, without assembling messages.

A WebSocket library would hold each message until its last byte has arrived, and copy it. A tunnel needs neither: bytes
are read into one buffer that is reused, and sent from the buffer that they were read into. For whole messages see
`messages`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import struct
from enum import IntEnum
from typing import Protocol, cast

from pathways_jupyter.errors import ClusterError
from pathways_jupyter.kube.http import READ_BYTES, parse_head
from pathways_jupyter.kube.problems import ConnectionLost

PING_SECONDS = 20.0
"""Time between pings; a server that sends nothing for as long after a ping is considered dead."""
WRITE_BUFFER_BYTES = 512 * 1024
"""High-water mark of a transport's write buffer: above it, the sender is paused."""
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_LONGEST_ANSWER = 64 * 1024
_TEARDOWN_SECONDS = 2.0
_NO_MASK = bytes(4)
_LONGEST_HEAD = 10

HEADROOM = 14
"""Free bytes that :meth:`WebSocket.send_in_place` needs before the data: the size of the longest frame head."""


class Opcode(IntEnum):
    """Frame types."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


_OPCODES = frozenset(Opcode)


class Receiver(Protocol):
    """Callbacks of a WebSocket, called in the event loop; they must not block."""

    def payload(self, data: memoryview, *, first: bool, last: bool) -> None:
        """Receive a piece of a message. Its memory is reused as soon as :meth:`holds_bytes` returns False."""

    def holds_bytes(self) -> bool:
        """Whether the memory of earlier pieces is still in use, so that the next read needs another buffer."""

    def closed(self, error: ClusterError | None) -> None:
        """Called once, when the connection has ended: properly (`error` is None) or not."""

    def pause(self) -> None:
        """The write buffer is full; stop sending."""

    def resume(self) -> None:
        """The write buffer has room again; continue to send."""


class Refused(Exception):
    """The server answered the upgrade request with an ordinary HTTP answer."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


class WebSocket(asyncio.BufferedProtocol):
    """A WebSocket connection.

    Args:
      receiver: Receives the data.
      encrypted: Whether the connection uses TLS.
    """

    def __init__(self, receiver: Receiver, *, encrypted: bool) -> None:
        self.subprotocol = ""
        self._receiver = receiver
        self._encrypted = encrypted
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._key = base64.b64encode(os.urandom(16))
        self._buffer = memoryview(bytearray(READ_BYTES))
        # An incomplete head (of the HTTP answer, then of a frame), kept until the rest of it arrives.
        self._head = b""
        self._upgraded = False
        self._finished = False
        self._opcode = Opcode.BINARY
        self._final = True
        self._left = 0
        self._first = True
        self._control = b""
        self._received = True
        self._reading = True
        self._timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> str:
        """The value for the request's ``Sec-WebSocket-Key`` header."""
        return self._key.decode()

    async def upgrade(self, request: bytes) -> None:
        """Send the upgrade request and wait for the answer.

        Raises:
          Refused: The server answered, but not with an upgrade.
          ConnectionLost: It did not answer.
        """
        self._write(request)
        try:
            await self._opened
        except BaseException:
            self.abort()
            raise

    def send(self, *parts: bytes | memoryview, opcode: Opcode = Opcode.BINARY) -> None:
        """Send one message made of `parts`; :meth:`Receiver.pause` is called when the write buffer is full."""
        if self._finished or self._transport is None:
            return
        head = _head(opcode, sum(len(part) for part in parts))
        # Clients must mask payloads, to protect HTTP caches on the way from scripts in browsers. Caches cannot look
        # into TLS, so there use a mask of zeros, which leaves the payload unchanged and saves the XOR.
        if self._encrypted:
            self._write(b"".join((head, _NO_MASK, *parts)))
        else:
            mask = os.urandom(4)
            self._write(b"".join((head, mask, _masked(b"".join(parts), mask))))

    def send_in_place(self, buffer: memoryview, begin: int, end: int) -> None:
        """Send ``buffer[begin:end]`` as one message without copying it; the buffer may be reused afterwards.

        Args:
          begin: At least :data:`HEADROOM`; the bytes before it are overwritten.
        """
        if not self._encrypted or self._transport is None:
            self.send(buffer[begin:end])
            return
        if self._finished:
            return
        head = _head(Opcode.BINARY, end - begin) + _NO_MASK
        buffer[begin - len(head) : begin] = head
        # TLS encrypts into a buffer of its own before this returns.
        self._transport.write(buffer[begin - len(head) : end])

    def close(self, code: int = 1000) -> None:
        """Send a close frame behind all earlier messages, and close the connection."""
        if not self._finished and self._transport is not None:
            self.send(struct.pack("!H", code), opcode=Opcode.CLOSE)
            self._finish(None)
            # close() waits until the write buffer is empty, which a stalled server would prevent for ever.
            self._transport.close()
            self._loop.call_later(_TEARDOWN_SECONDS, self._transport.abort)

    def abort(self) -> None:
        """Abort the connection; unsent bytes are dropped."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading, so that TCP makes the server wait once its buffers are full."""
        if self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Continue to read."""
        if self._transport is not None and not self._transport.is_closing():
            self._reading = self._received = True
            self._transport.resume_reading()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.Protocol`."""
        # uvloop's transports are transports in all but name.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._timer = self._loop.call_later(PING_SECONDS, self._ping)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See :class:`asyncio.BufferedProtocol`."""
        # The receiver wrote the last bytes to a socket that has not sent them all, from this very memory.
        if self._receiver.holds_bytes():
            self._buffer = memoryview(bytearray(READ_BYTES))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See :class:`asyncio.BufferedProtocol`."""
        self._received = True
        data = self._buffer[:nbytes]
        if self._upgraded:
            self._frames(data)
            return
        self._head += data
        try:
            self._answered()
        except ValueError as error:
            self._fail(f"the answer to the upgrade request is invalid ({error})")

    def eof_received(self) -> None:
        """See :class:`asyncio.Protocol`."""
        if not self._upgraded:
            self._answered(complete=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        self._finish(lost(str(exc) if exc and str(exc) else "it ended without a close frame"))

    def pause_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        self._receiver.pause()

    def resume_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        self._receiver.resume()

    # Parsing.

    def _answered(self, *, complete: bool = False) -> None:
        head, separator, rest = self._head.partition(b"\r\n\r\n")
        if not separator:
            if len(head) > _LONGEST_ANSWER:
                raise ValueError("it is too long")
            return
        status, headers = parse_head(head)
        if status != 101:
            # Wait for the body, which has the reason: all of it, as much as we read at most, or the last chunk.
            expected = int(headers.get("content-length", _LONGEST_ANSWER))
            whole = complete or len(rest) >= min(expected, _LONGEST_ANSWER) or rest.endswith(b"0\r\n\r\n")
            if whole and not self._opened.done():
                self._opened.set_exception(Refused(status, rest))
            return
        digest = base64.b64encode(hashlib.sha1(self._key + _GUID, usedforsecurity=False).digest()).decode()
        if headers.get("sec-websocket-accept") != digest:
            raise ValueError("its Sec-WebSocket-Accept does not match")
        self.subprotocol = headers.get("sec-websocket-protocol", "")
        self._upgraded, self._head = True, b""
        if not self._opened.done():
            self._opened.set_result(None)
        if rest:
            self._frames(memoryview(rest))

    def _frames(self, view: memoryview) -> None:
        while len(view) and not self._finished:
            # Inside of a frame, everything up to its end is payload.
            if self._left:
                piece, view = view[: self._left], view[self._left :]
                self._left -= len(piece)
                self._piece(piece)
                continue
            head = self._head + bytes(view[:_LONGEST_HEAD])
            size = _head_size(head)
            if len(head) < size:
                self._head = head
                return
            # Masked frames, reserved bits and unknown opcodes are protocol errors (RFC 6455, 5.1 and 5.2).
            if head[1] & 0x80 or head[0] & 0x70 or head[0] & 0x0F not in _OPCODES:
                self._fail("it sent an invalid frame")
                return
            view = view[size - len(self._head) :]
            self._head = b""
            self._begin(head[0], _length(head))
            if not self._left:
                self._piece(memoryview(b""))

    def _begin(self, first: int, length: int) -> None:
        opcode = Opcode(first & 0x0F)
        self._left = length
        # Control frames may arrive between the frames of a message, and leave its state as it is.
        if opcode >= Opcode.CLOSE:
            self._control = b""
        else:
            self._final = bool(first & 0x80)
            self._first = opcode is not Opcode.CONTINUATION
        self._opcode = opcode

    def _piece(self, piece: memoryview) -> None:
        if self._opcode < Opcode.CLOSE:
            self._receiver.payload(piece, first=self._first, last=self._final and not self._left)
            self._first = False
            return
        self._control += piece
        if self._left:
            return
        if self._opcode is Opcode.PING:
            self.send(self._control, opcode=Opcode.PONG)
        elif self._opcode is Opcode.CLOSE:
            self._handle_close(self._control)

    def _handle_close(self, payload: bytes) -> None:
        code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1000
        reason = payload[2:].decode(errors="replace")
        self.send(payload[:2], opcode=Opcode.CLOSE)
        proper = code in {1000, 1001}
        self._finish(None if proper else lost(f"the server closed it with code {code} {reason}".rstrip()))
        if self._transport is not None:
            self._transport.close()

    def _ping(self) -> None:
        if self._finished:
            return
        # While reading is paused, a pong cannot arrive; that says nothing about the server.
        if not self._received and self._reading:
            self._fail("the server stopped answering")
            return
        self._received = False
        if self._upgraded:
            self.send(opcode=Opcode.PING)
        self._timer = self._loop.call_later(PING_SECONDS, self._ping)

    def _fail(self, problem: str) -> None:
        self._finish(lost(problem))
        self.abort()

    def _finish(self, error: ClusterError | None) -> None:
        if self._finished:
            return
        self._finished = True
        if self._timer is not None:
            self._timer.cancel()
        if not self._opened.done():
            # The caller of upgrade() gets the error; the receiver has never been connected.
            self._opened.set_exception(error or lost("it was closed"))
        elif self._upgraded:
            self._receiver.closed(error)

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)


def _head(opcode: Opcode, size: int) -> bytes:
    if size < 126:
        return struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    if size < 0x10000:
        return struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
    return struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)


def _head_size(view: bytes) -> int:
    if len(view) < 2:
        return 2
    return {126: 4, 127: 10}.get(view[1] & 0x7F, 2)


def _length(view: bytes) -> int:
    short = view[1] & 0x7F
    if short < 126:
        return short
    return int.from_bytes(view[2:4] if short == 126 else view[2:10], "big")


def _masked(data: bytes, mask: bytes) -> bytes:
    whole = mask * (len(data) // 4 + 1)
    number = int.from_bytes(data, "little") ^ int.from_bytes(whole[: len(data)], "little")
    return number.to_bytes(len(data), "little")


def lost(problem: str) -> ConnectionLost:
    """Return the error for a WebSocket that did not end properly."""
    return ConnectionLost(f"The connection through the API server was lost: {problem}.", hint="Try again.")
