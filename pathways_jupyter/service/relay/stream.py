"""A byte stream that continues on another connection where the last one broke: the protocol, without any I/O.

Two ends keep one :class:`Stream` each: the session's supervisor, and the relay beside the proxy. What connects them at
the moment is a *carrier*; there is one at a time, and any number one after the other. Each piece of data says at which
position of the stream it begins, so bytes that arrive twice are dropped, and none can be missed unnoticed. A sender
keeps what the other end has not acknowledged. When its buffer is full the caller has to wait, as with TCP.

A carrier begins with the supervisor's :class:`Hello`, which the relay answers with a :class:`Welcome`; each says how
much it has received, and the other end continues from there. Then come frames: a header of 13 bytes, and the data.

This text also runs in the relay's container: standard library only, for Python 3.9 and later, and no dollar sign,
because Kubernetes would expand it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

BLOCK_BYTES = 256 * 1024
"""Buffers grow by this much, which is also the most that one frame carries."""
ACK_BYTES = BLOCK_BYTES
"""Data is acknowledged each time that so much of it has arrived.

A full buffer of two blocks has at least so much that is not acknowledged, so that a sender never waits in vain.
"""
_OWN_BLOCKS = 2

SECRET_BYTES = 32

_HEADER = struct.Struct(">BQI")
_DATA, _ACK, _PING, _PONG, _FINISH, _FINISHED = range(1, 7)
_HELLO = struct.Struct(">4s32s16sIQB")
_WELCOME = struct.Struct(">4sBQ")
_MAGIC = b"PJR1"

HELLO_BYTES, WELCOME_BYTES = _HELLO.size, _WELCOME.size

# The relay's answers to a Hello.
ACCEPTED, UNKNOWN, OUTDATED, REFUSED, FULL = range(5)


class ProtocolError(Exception):
    """The other end does not follow the protocol; its carrier has to be closed."""


class Unrecoverable(Exception):
    """The two ends cannot agree on a position, so that bytes would be missing or repeated; the stream is lost."""


@dataclass(frozen=True)
class Hello:
    """What the supervisor sends first on a carrier.

    Attributes:
      secret: 32 bytes that prove that it is the session's supervisor.
      stream: 16 bytes that identify the stream.
      attempt: Number of the carrier, so that one that was overtaken on its way is not taken for the latest.
      received: How many bytes of the stream have arrived here.
      is_new: Whether the stream may be unknown to the relay, because no carrier of it was ever answered.
    """

    secret: bytes
    stream: bytes
    attempt: int
    received: int
    is_new: bool

    def encode(self) -> bytes:
        """Return the message of :data:`HELLO_BYTES`."""
        return _HELLO.pack(_MAGIC, self.secret, self.stream, self.attempt, self.received, self.is_new)

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        """The inverse of :meth:`encode`.

        Raises:
          ProtocolError: It is not a Hello.
        """
        magic, secret, stream, attempt, received, is_new = _HELLO.unpack(data)
        if magic != _MAGIC or is_new > 1:
            raise ProtocolError("not a hello")
        return cls(secret, stream, attempt, received, bool(is_new))


@dataclass(frozen=True)
class Welcome:
    """The relay's answer to a :class:`Hello`.

    Attributes:
      code: :data:`ACCEPTED`, or why not.
      received: How many bytes of the stream have arrived there.
    """

    code: int
    received: int = 0

    def encode(self) -> bytes:
        """Return the message of :data:`WELCOME_BYTES`."""
        return _WELCOME.pack(_MAGIC, self.code, self.received)

    @classmethod
    def decode(cls, data: bytes) -> Welcome:
        """The inverse of :meth:`encode`.

        Raises:
          ProtocolError: It is not a Welcome.
        """
        magic, code, received = _WELCOME.unpack(data)
        if magic != _MAGIC:
            raise ProtocolError("not a relay's answer")
        return cls(code, received)


class Pool:
    """Memory that the streams of one process share.

    Args:
      blocks: How many blocks all of its streams may use, besides the first two of each.
      each: How many blocks one stream may use.
    """

    def __init__(self, blocks: int, each: int) -> None:
        self.each = each
        self._left = blocks
        self._free: list[bytearray] = []

    def take(self) -> bytearray | None:
        """Return a block, or None while all are in use."""
        if self._left <= 0:
            return None
        self._left -= 1
        return self._free.pop() if self._free else bytearray(BLOCK_BYTES)

    def give(self, block: bytearray) -> None:
        """Return a block that was taken; kept for the next stream, since fresh memory is slow."""
        self._left += 1
        self._free.append(block)


class ReplayBuffer:
    """What one end sends: everything from the first byte that is not acknowledged.

    Attributes:
      acked: Position up to which the other end has received everything.
      sent: Position up to which the current carrier was given everything.
      end: Position of the next byte to be written.
    """

    def __init__(self, pool: Pool) -> None:
        self.acked = self.sent = self.end = 0
        self._pool = pool
        # Blocks of its own, so that a stream goes on, if slowly, while the others use up the pool.
        self._own: list[bytearray] = []
        self._owned = self._taken = 0
        # Blocks in the order of the stream; the first byte of the first one is at position `_base`.
        self._blocks: deque[bytearray] = deque()
        self._base = 0

    def space(self) -> memoryview:
        """Return where to write the next bytes; empty while the buffer is full. Then call :meth:`filled`."""
        used = self.end - self._base
        if used == len(self._blocks) * BLOCK_BYTES and not self._grow():
            return memoryview(b"")
        return memoryview(self._blocks[-1])[used - (len(self._blocks) - 1) * BLOCK_BYTES :]

    def filled(self, count: int) -> None:
        """Note that `count` bytes were written into :meth:`space`."""
        self.end += count

    def unsent(self) -> memoryview:
        """Return bytes that the carrier has not been given yet, at most the rest of one block."""
        if self.sent == self.end:
            return memoryview(b"")
        index, offset = divmod(self.sent - self._base, BLOCK_BYTES)
        return memoryview(self._blocks[index])[offset : offset + self.end - self.sent]

    def acknowledge(self, position: int) -> None:
        """Release everything before `position`.

        Raises:
          ProtocolError: So much was never sent.
        """
        if position > self.sent:
            raise ProtocolError(f"{position} bytes acknowledged, {self.sent} sent")
        self.acked = max(self.acked, position)
        if self.acked == self.end:
            # Begin again in the first block, so that a stream of small messages stays within it.
            self._release(len(self._blocks))
            self._base = self.end
        else:
            done = (self.acked - self._base) // BLOCK_BYTES
            self._release(done)
            self._base += done * BLOCK_BYTES

    def rewind(self, position: int) -> None:
        """Send from `position` on again, on another carrier.

        Raises:
          Unrecoverable: Those bytes are no longer here, or were never written.
        """
        if not self.acked <= position <= self.end:
            raise Unrecoverable(f"{position} bytes arrived of {self.acked} to {self.end}")
        self.sent = self.end
        self.acknowledge(position)
        self.sent = position

    def close(self) -> None:
        """Give all memory back."""
        self._release(len(self._blocks))
        self._own, self._owned = [], 0
        self._base = self.acked = self.sent = self.end

    def _grow(self) -> bool:
        block: bytearray | None
        if self._own:
            block = self._own.pop()
        elif self._owned < _OWN_BLOCKS:
            self._owned += 1
            block = bytearray(BLOCK_BYTES)
        else:
            block = self._pool.take() if len(self._blocks) < self._pool.each else None
            self._taken += block is not None
        if block is not None:
            self._blocks.append(block)
        return block is not None

    def _release(self, count: int) -> None:
        for _ in range(count):
            block = self._blocks.popleft()
            # All blocks are alike: those of the pool are given back first.
            if self._taken:
                self._taken -= 1
                self._pool.give(block)
            else:
                self._own.append(block)


class Stream:
    """One end of a stream.

    The caller writes into :meth:`space`, sends what :meth:`next` returns, and gives what it receives to :meth:`feed`.

    Attributes:
      attempt: Number of the last carrier.
      received: How many bytes have arrived here; the caller of :meth:`feed` has them.
      undelivered: How many of those the caller has not passed on; they are not acknowledged, so that a sender that is
        faster than the receiver has to wait.
      finished: Whether this end writes no more.
      is_over: Whether the other end knows that this one has finished.
      peer_finished: Whether everything that the other end will ever write has arrived.
      answered: Number of the last ping that was answered.
    """

    def __init__(self, pool: Pool) -> None:
        self.attempt = 0
        self.received = self.undelivered = 0
        self.finished = self.is_over = self.peer_finished = False
        self.answered = 0
        self._out = ReplayBuffer(pool)
        self._reset()

    def _reset(self) -> None:
        """Forget what belongs to one carrier."""
        self._head = bytearray()
        self._left = self._skip = 0
        self._acked = self.received
        self._ping = self._pong = 0
        self._said_finish = self._say_finished = False

    # Sending.

    def space(self) -> memoryview:
        """Return where to write the next bytes; empty while the buffer is full. Then call :meth:`filled`."""
        return self._out.space()

    def filled(self, count: int) -> None:
        """Note that `count` bytes were written into :meth:`space`."""
        self._out.filled(count)

    def write(self, data: bytes | memoryview) -> int:
        """Copy as much of `data` into the buffer as there is room for; return how much."""
        view, done = memoryview(data), 0
        while done < len(view) and (space := self._out.space()):
            count = min(len(space), len(view) - done)
            space[:count] = view[done : done + count]
            self._out.filled(count)
            done += count
        return done

    def finish(self) -> None:
        """Write no more: the other end learns it after the last byte."""
        self.finished = True

    def ping(self, number: int) -> None:
        """Ask the other end for a sign of life; it sets :attr:`answered` to `number`, which must not be 0."""
        self._ping = number

    @property
    def must_answer(self) -> bool:
        """Whether there is a frame to send although nothing was written: an acknowledgement, an answer to a ping."""
        acknowledges = self.received - self.undelivered - self._acked >= ACK_BYTES
        return bool(acknowledges or self._pong or self._say_finished)

    def next(self) -> tuple[bytes, memoryview] | None:
        """Return the next frame for the carrier, header and data, or None while there is nothing to send.

        The data is valid until the other end acknowledges it.
        """
        nothing = memoryview(b"")
        if self._pong:
            number, self._pong = self._pong, 0
            return _HEADER.pack(_PONG, number, 0), nothing
        if self._ping:
            number, self._ping = self._ping, 0
            return _HEADER.pack(_PING, number, 0), nothing
        if (delivered := self.received - self.undelivered) - self._acked >= ACK_BYTES:
            self._acked = delivered
            return _HEADER.pack(_ACK, delivered, 0), nothing
        if data := self._out.unsent():
            header = _HEADER.pack(_DATA, self._out.sent, len(data))
            self._out.sent += len(data)
            return header, data
        if self.finished and not self._said_finish:
            self._said_finish = True
            return _HEADER.pack(_FINISH, self._out.end, 0), nothing
        if self._say_finished:
            self._say_finished = False
            return _HEADER.pack(_FINISHED, self.received, 0), nothing
        return None

    # Receiving.

    def feed(self, data: bytes | memoryview) -> Iterator[memoryview]:
        """Take in bytes of the carrier, and yield the stream's own among them.

        What was yielded counts as received: the caller must not lose it, and need not take the rest.

        Raises:
          ProtocolError: The other end does not follow the protocol.
        """
        view, at = memoryview(data), 0
        while at < len(view):
            if self._left:
                count = min(self._left, len(view) - at)
                dropped = min(self._skip, count)
                piece = view[at + dropped : at + count]
                at += count
                self._left -= count
                self._skip -= dropped
                if piece:
                    self.received += len(piece)
                    yield piece
                continue
            missing = _HEADER.size - len(self._head)
            self._head += view[at : at + missing]
            at += missing
            if len(self._head) == _HEADER.size:
                kind, position, length = _HEADER.unpack(self._head)
                self._head.clear()
                self._take(kind, position, length)

    def _take(self, kind: int, position: int, length: int) -> None:
        if length > BLOCK_BYTES or (length and kind != _DATA):
            raise ProtocolError(f"a frame of {length} bytes")
        if kind == _DATA:
            if position > self.received or self.peer_finished:
                raise ProtocolError(f"data at {position} after {self.received} bytes")
            self._left, self._skip = length, min(length, self.received - position)
        elif kind == _ACK:
            self._out.acknowledge(position)
        elif kind == _PING:
            self._pong = position
        elif kind == _PONG:
            self.answered = position
        elif kind == _FINISH:
            if position != self.received:
                raise ProtocolError(f"the end at {position} after {self.received} bytes")
            self.peer_finished = self._say_finished = True
        elif kind == _FINISHED:
            if not self.finished or position != self._out.end:
                raise ProtocolError("the end of an unfinished stream was confirmed")
            self._out.acknowledge(position)
            self.is_over = True
        else:
            raise ProtocolError(f"a frame of kind {kind}")

    # Carriers.

    def hello(self, secret: bytes, stream: bytes, *, is_new: bool) -> Hello:
        """Return what to send first on the next carrier."""
        self.attempt += 1
        return Hello(secret, stream, self.attempt, self.received, is_new)

    def welcome(self, hello: Hello) -> Welcome:
        """Switch to the carrier that began with `hello`, and return the answer; the previous one must not be used.

        Raises:
          Unrecoverable: The stream cannot be continued.
        """
        if hello.attempt <= self.attempt:
            # It was overtaken by a later one, or arrived twice.
            return Welcome(OUTDATED)
        self.attempt = hello.attempt
        self.resume(hello.received)
        return Welcome(ACCEPTED, self.received)

    def resume(self, received: int) -> None:
        """Begin with another carrier, whose other end has received so many bytes.

        Raises:
          Unrecoverable: The stream cannot be continued.
        """
        self._out.rewind(received)
        self._reset()
        # The other end may not have learned that its own end was received.
        self._say_finished = self.peer_finished

    def close(self) -> None:
        """Give all memory back."""
        self._out.close()
