"""gRPC calls on top of HTTP/2 streams: messages in both directions, and a final status."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from urllib.parse import quote

from google.protobuf.message import DecodeError

from pathways_jupyter.local.pathways.http2 import wire
from pathways_jupyter.local.pathways.http2.sending import Bytes, Sender
from pathways_jupyter.local.pathways.http2.wire import FrameType

OK, INVALID_ARGUMENT, INTERNAL = 0, 3, 13
"""The statuses of gRPC that are used here."""
_MALFORMED = (DecodeError, LookupError, OverflowError, StopIteration, TypeError, ValueError)
"""Exceptions of Python for data that does not fit together, which comes from the client."""


class CallError(Exception):
    """Raised by handlers and receivers to end their call with this status of gRPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def error_status(error: BaseException) -> tuple[int, str]:
    """Return the status of a call, or of a request, that ended with an exception of Python's."""
    if isinstance(error, _MALFORMED):
        return INVALID_ARGUMENT, f"malformed request ({type(error).__name__}: {error})"
    return INTERNAL, f"{type(error).__name__}: {error}"


_PREFIX = struct.Struct(">BI")

_HEADERS = wire.encode_headers([(b":status", b"200"), (b"content-type", b"application/grpc")])


class RpcCall:
    """One call as the server sees it.

    Attributes:
      path: The method, ``/service/method``.
      metadata: The client's metadata, by lower-case key.
      receiver: Set by the handler of the call, and called on the connection's thread, so it must not block; None again
        once the call is over for either side: what the client still sends does not matter then.
    """

    def __init__(self, sender: Sender, stream: int, path: str, metadata: Mapping[str, bytes]) -> None:
        self.path = path
        self.metadata = metadata
        self.receiver: Messages | Content | None = None
        self._sender = sender
        self._stream = stream
        self._outbox = sender.open(stream)
        self._head = wire.frame_head(len(_HEADERS), FrameType.HEADERS, wire.END_HEADERS, stream) + _HEADERS

    def send(self, *parts: Bytes) -> None:
        """Send one message, made of these parts; from any thread, and without waiting for the client."""
        head, self._head = self._head, b""
        self._sender.send(self._outbox, head, [_PREFIX.pack(0, sum(map(len, parts))), *parts])

    def finish(self, code: int = OK, message: str = "") -> None:
        """End the call, after everything that was sent before."""
        # A receiver and its call refer to each other: apart, what they hold is freed now, be it a gigabyte, and not
        # when Python's collector runs next, which counts objects and not bytes.
        self.receiver = None
        block = _trailers(code, message)
        if self._head:
            block = _HEADERS + block
            self._head = b""
        end = wire.END_HEADERS | wire.END_STREAM
        self._sender.finish(self._outbox, wire.frame_head(len(block), FrameType.HEADERS, end, self._stream) + block)


class Messages:
    """A receiver of whole messages: a request, or a stream of them.

    Args:
      end: Called at the end of the client's data.
      gone: Called when the client has cancelled the call, or disconnected; nothing that is sent will arrive.
    """

    def __init__(
        self,
        message: Callable[[bytes], None],
        end: Callable[[], None] = lambda: None,
        gone: Callable[[], None] = lambda: None,
    ) -> None:
        self._message = message
        self.end = end
        self.gone = gone
        self._partial = bytearray()

    def data(self, piece: memoryview) -> None:
        """Split bytes into messages."""
        # Nearly always a piece is one whole message.
        if self._partial or len(piece) < _PREFIX.size or len(piece) != _PREFIX.size + _length(piece):
            self._partial += piece
            while len(self._partial) >= _PREFIX.size:
                end = _PREFIX.size + _length(self._partial)
                if len(self._partial) < end:
                    return
                message = bytes(self._partial[_PREFIX.size : end])
                del self._partial[:end]
                self._message(message)
        else:
            self._message(bytes(piece[_PREFIX.size :]))


class Content:
    """A receiver that passes on the content of messages piece by piece, for messages too large to be assembled.

    Args:
      begin: Called with the length of each message.
      piece: Called with its bytes, in order; the memory is reused afterwards.
      end: See :class:`Messages`, also for `gone`.
    """

    def __init__(
        self,
        begin: Callable[[int], None],
        piece: Callable[[memoryview], None],
        end: Callable[[], None],
        gone: Callable[[], None] = lambda: None,
    ) -> None:
        self._begin = begin
        self._piece = piece
        self.end = end
        self.gone = gone
        self._left = 0
        self._prefix = bytearray()

    def data(self, piece: memoryview) -> None:
        """Pass on the bytes of messages."""
        while piece:
            if self._left:
                part = piece[: self._left]
                self._left -= len(part)
                self._piece(part)
            else:
                part = piece[: _PREFIX.size - len(self._prefix)]
                self._prefix += part
                if len(self._prefix) == _PREFIX.size:
                    self._left = _length(self._prefix)
                    self._prefix.clear()
                    self._begin(self._left)
            piece = piece[len(part) :]


@lru_cache(maxsize=16)
def _trailers(code: int, message: str) -> bytes:
    fields = [(b"grpc-status", b"%d" % code)]
    if message:
        fields.append((b"grpc-message", quote(message, safe=" ").encode()))
    return wire.encode_headers(fields)


def _length(prefix: bytearray | memoryview) -> int:
    return int.from_bytes(prefix[1 : _PREFIX.size])
