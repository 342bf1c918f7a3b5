"""A byte stream that continues on another connection where the last one broke: the protocol, without any I/O.

Two ends keep one :class:`StreamEnd` each: the session's supervisor, and the relay beside the proxy. What connects them
at the moment is a *carrier*; there is one at a time, and any number one after the other. Each piece of data says at
which position of the stream it begins, so bytes that arrive twice are dropped, and none can be missed unnoticed. A
sender keeps what the other end has not acknowledged. When its buffer is full the caller has to wait, as with TCP.

A carrier begins with the supervisor's :class:`Hello`, which the relay answers with a :class:`Welcome`; each says how
much it has received, and the other end continues from there. Then come frames: a header of 13 bytes, and the data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pathways_jupyter.tunnel.relay.wire import (
    ACCEPTED,
    ACK,
    ASK,
    BLOCK_BYTES,
    DATA,
    FINISH,
    FINISHED,
    HEADER,
    OUTDATED,
    PING,
    PONG,
    Hello,
    ProtocolError,
    Unrecoverable,
    Welcome,
)

ACK_BYTES = 8 * BLOCK_BYTES
"""Data is acknowledged each time that so much of it has arrived, or when the sender asks because its buffer is full.

An acknowledgement goes all the way through the API server, so it costs more than the bytes that it releases. What asks
for it comes right behind the last byte that fits, so a sender far away need not wait longer because they are rare.
"""
OWN_BYTES = 2 * BLOCK_BYTES
"""Memory of each stream, so that it goes on, if slowly, while the others use up the pool."""
_LEAST_ROOM_BYTES = 64 * 1024
_LARGE_BYTES = 32 * 1024
_HEADER_BYTES = HEADER.size


class Pool:
    """Memory that the streams of one process share, besides what each has of its own.

    Attributes:
      left: Bytes that are left for all of them.
      each: Bytes that one stream may use.
    """

    def __init__(self, blocks: int, each: int) -> None:
        self.left = blocks * BLOCK_BYTES
        self.each = max(each * BLOCK_BYTES, OWN_BYTES)


class ReplayBuffer:
    """Sent bytes of one end: everything from the first byte that is not acknowledged.

    Attributes:
      acked: Position up to which the other end has received everything.
      sent: Position up to which the current carrier was given everything.
      end: Position of the next byte to be written.
    """

    def __init__(self, pool: Pool) -> None:
        self.acked = self.sent = self.end = 0
        self._pool = pool
        self._pooled = 0
        # Blocks, because to remove the front of one large buffer is to move the rest, again and again.
        self._sent: deque[memoryview | bytearray] = deque()
        self._unsent: deque[memoryview | bytearray] = deque()
        self._start = 0
        """Position at which the first block begins; some of it may be acknowledged."""

    @property
    def room(self) -> int:
        """Number of bytes that can be written."""
        size = self.end - self.acked
        return min(self._pool.each - size, max(0, OWN_BYTES - size) + self._pool.left)

    @property
    def is_full(self) -> bool:
        """Return whether too little can be written to be worth reading it."""
        return self.room < _LEAST_ROOM_BYTES

    def write(self, data: bytes | memoryview) -> int:
        """Keep as much of `data` as there is room for; return how much. It must not change any more."""
        piece = memoryview(data)[: self.room]
        for at in range(0, len(piece), BLOCK_BYTES):
            _append(self._unsent, piece[at : at + BLOCK_BYTES])
        self.end += len(piece)
        self._account()
        return len(piece)

    def send(self) -> bytes | memoryview:
        """Return the next bytes for the carrier, as many as a frame may have; they count as sent."""
        block = self._unsent.popleft()
        _append(self._sent, block)
        self.sent += len(block)
        # The block grows by what is sent next.
        return bytes(block) if isinstance(block, bytearray) else block

    def acknowledge(self, position: int) -> None:
        """Release everything before `position`.

        Raises:
          ProtocolError: So much was never sent.
        """
        if position > self.sent:
            raise ProtocolError(f"{position} bytes acknowledged, {self.sent} sent")
        if position > self.acked:
            while self._sent and self._start + len(self._sent[0]) <= position:
                self._start += len(self._sent.popleft())
            self.acked = position
            self._account()

    def rewind(self, position: int) -> None:
        """Send from `position` on again, on another carrier.

        Raises:
          Unrecoverable: Those bytes are no longer here, or were never written.
        """
        if not self.acked <= position <= self.end:
            raise Unrecoverable(f"{position} bytes arrived of {self.acked} to {self.end}")
        # More may have arrived than this carrier was given: an earlier one's.
        while self.sent < position:
            self.send()
        self.acknowledge(position)
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        if self._start < position:
            self._unsent[0] = self._unsent[0][position - self._start :]
        self._start = self.sent = position

    def close(self) -> None:
        """Give all memory back."""
        self._sent.clear()
        self._unsent.clear()
        self.acked = self.sent = self._start = self.end
        self._account()

    def _account(self) -> None:
        pooled = max(0, self.end - self.acked - OWN_BYTES)
        self._pool.left += self._pooled - pooled
        self._pooled = pooled


def _append(blocks: deque[memoryview | bytearray], piece: memoryview | bytearray) -> None:
    """Append a large piece as it is, and join small ones: an object for each would need more memory than its bytes."""
    last = blocks[-1] if blocks else None
    if isinstance(last, bytearray) and len(last) + len(piece) <= BLOCK_BYTES:
        last += piece
    else:
        blocks.append(piece if len(piece) >= _LARGE_BYTES else bytearray(piece))


class StreamEnd:
    """One end of a stream.

    The caller writes to :attr:`out`, sends what :meth:`next` returns, and gives what it receives to :meth:`feed`.

    Attributes:
      out: What this end sends.
      attempt: Number of the last carrier.
      received: How many bytes have arrived here; the caller of :meth:`feed` has them.
      undelivered: How many of those the caller has not passed on; they are not acknowledged, so that a sender that is
        faster than the receiver has to wait.
      finished: Whether this end writes no more.
      is_over: Whether the other end knows that this one has finished.
      peer_finished: Whether everything that the other end will ever write has arrived.
    """

    def __init__(self, pool: Pool) -> None:
        self.attempt = 0
        self.received = self.undelivered = 0
        self.finished = self.is_over = self.peer_finished = False
        self.out = ReplayBuffer(pool)
        self._reset()

    def _reset(self) -> None:
        """Forget what belongs to one carrier."""
        self._head = bytearray()
        self._left = self._skip = 0
        self._acked = self.received
        self._ping = self._pong = 0
        self._said_finish = self._say_finished = False
        # Whether this end has asked for an acknowledgement, and whether the other end has.
        self._requested_ack = self._must_ack = False

    # Sending.

    def finish(self) -> None:
        """Write no more: the other end learns it after the last byte."""
        self.finished = True

    def ping(self, number: int) -> None:
        """Ask the other end for a sign of life, which is a frame with `number`; it must not be 0."""
        self._ping = number

    @property
    def must_answer(self) -> bool:
        """Return whether there is a frame to send although nothing was written: an acknowledgement or a pong."""
        news = self.received - self.undelivered - self._acked
        return bool(news >= ACK_BYTES or (news and self._must_ack) or self._pong or self._say_finished)

    def next(self) -> tuple[bytes, bytes | memoryview] | None:
        """Return the next frame for the carrier, header and data, or None while there is nothing to send."""
        if self._pong:
            number, self._pong = self._pong, 0
            return HEADER.pack(PONG, number, 0), b""
        if self._ping:
            number, self._ping = self._ping, 0
            return HEADER.pack(PING, number, 0), b""
        news = self.received - self.undelivered - self._acked
        if news >= ACK_BYTES or (news and self._must_ack):
            self._acked, self._must_ack = self._acked + news, False
            return HEADER.pack(ACK, self._acked, 0), b""
        out = self.out
        if out.sent != out.end:
            position, data = out.sent, out.send()
            return HEADER.pack(DATA, position, len(data)), data
        if not self._requested_ack and out.is_full:
            # The other end acknowledges rarely, and does not know how little room there is here.
            self._requested_ack = True
            return HEADER.pack(ASK, self.out.end, 0), b""
        if self.finished and not self._said_finish:
            self._said_finish = True
            return HEADER.pack(FINISH, self.out.end, 0), b""
        if self._say_finished:
            self._say_finished = False
            return HEADER.pack(FINISHED, self.received, 0), b""
        return None

    # Receiving.

    def feed(self, data: bytes | memoryview) -> Iterator[memoryview]:
        """Take in bytes of the carrier, and yield the stream's own among them.

        What was yielded counts as received: the caller must not lose it, and need not take the rest.

        Raises:
          ProtocolError: The other end does not follow the protocol.
        """
        view, at = memoryview(data), 0
        end = len(view)
        while at < end:
            if not self._left:
                if not self._head and end - at >= _HEADER_BYTES:
                    kind, position, length = HEADER.unpack_from(view, at)
                    at += _HEADER_BYTES
                else:
                    missing = _HEADER_BYTES - len(self._head)
                    self._head += view[at : at + missing]
                    at += missing
                    if len(self._head) < _HEADER_BYTES:
                        return
                    kind, position, length = HEADER.unpack(self._head)
                    self._head.clear()
                self._take(kind, position, length)
            if count := min(self._left, end - at):
                start = at + min(self._skip, count)
                at += count
                self._left -= count
                if self._skip:
                    self._skip -= min(self._skip, count)
                if start < at:
                    self.received += at - start
                    yield view[start:at]

    def _take(self, kind: int, position: int, length: int) -> None:
        if length > BLOCK_BYTES or (length and kind != DATA):
            raise ProtocolError(f"a frame of {length} bytes")
        if kind == DATA:
            if position > self.received or self.peer_finished:
                raise ProtocolError(f"data at {position} after {self.received} bytes")
            self._left, self._skip = length, min(length, self.received - position)
        elif kind == ACK:
            self.out.acknowledge(position)
            self._requested_ack = False
        elif kind == ASK:
            self._must_ack = True
        elif kind == PING:
            # With an acknowledgement: on a slow connection few would come otherwise, and all the rest be sent again.
            self._pong, self._must_ack = position, True
        elif kind == PONG:
            # That something arrived is all that counts.
            pass
        elif kind == FINISH:
            if position != self.received:
                raise ProtocolError(f"the end at {position} after {self.received} bytes")
            self.peer_finished = self._say_finished = True
        elif kind == FINISHED:
            if not self.finished or position != self.out.end:
                raise ProtocolError("the end of an unfinished stream was confirmed")
            self.out.acknowledge(position)
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
        self.out.rewind(received)
        self._reset()
        # The other end may not have learned that its own end was received.
        self._say_finished = self.peer_finished

    def close(self) -> None:
        """Give all memory back."""
        self.out.close()
