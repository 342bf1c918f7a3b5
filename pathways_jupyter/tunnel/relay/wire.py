"""Messages between the two ends of a stream: those that begin a carrier, and the header of a frame."""

from __future__ import annotations

import struct
from dataclasses import dataclass

BLOCK_BYTES = 256 * 1024
"""Buffers grow by this much, which is also the most that one frame carries."""
SECRET_BYTES = 32

HEADER = struct.Struct(">BQI")
"""Of a frame: its kind, a position or a number, and how many bytes of data follow."""
DATA, ACK, PING, PONG, FINISH, FINISHED, ASK = range(1, 8)
"""Kinds of frames; ASK asks for an acknowledgement, because the sender's buffer is full."""
_HELLO = struct.Struct(">4s32s16sIQB")
_WELCOME = struct.Struct(">4sBQ")
_MAGIC = b"PJR2"

HELLO_BYTES, WELCOME_BYTES = _HELLO.size, _WELCOME.size

# The relay's answers to a Hello.
ACCEPTED, UNKNOWN, OUTDATED, REFUSED, FULL = range(5)


class ProtocolError(Exception):
    """The other end does not follow the protocol; its carrier has to be closed."""


class Unrecoverable(Exception):
    """The two ends cannot agree on a position, so that bytes would be missing or repeated; the stream is lost."""


@dataclass(frozen=True)
class Hello:
    """First message of the supervisor on a carrier.

    Attributes:
      secret: 32 bytes that prove that it is the session's supervisor.
      stream: 16 bytes that identify the stream.
      attempt: Number of the carrier, so that one that was overtaken is not taken for the latest.
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
        """Decode what :meth:`encode` returns.

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
        """Decode what :meth:`encode` returns.

        Raises:
          ProtocolError: It is not a Welcome.
        """
        magic, code, received = _WELCOME.unpack(data)
        if magic != _MAGIC:
            raise ProtocolError("not a relay's answer")
        return cls(code, received)
