"""The local connection of JAX, which begins without the proxy, and ends in a way that JAX's client survives.

JAX uploads over a connection of its own, which it opens when it uploads. Where the proxy's first frame, its settings,
has not come within 20 seconds, gRPC gives up, and JAX's client with it: what a cell uploads while the connection to
the cluster is cut would cost all arrays. So the first frame comes from here. The proxy's settings follow; JAX's answer
to the first frame must not reach the proxy, as it is none to a frame of its own.

When a connection to a proxy breaks, gRPC ends all its calls at the same moment. JAX uploads each buffer in a call of
its own, and each upload that fails takes the client apart, on a thread of its own. jaxlib 0.10.2 does that without a
lock (``RpcHelper::Batcher::Finish`` destroys its thread pool): with several uploads on the way, two threads sometimes
free the same memory, and the kernel aborts. With 32 of them it did so one time in a few hundred. So a few calls are
ended first, one after another, as the proxy might end them, and the others only when the client is apart.

To know which calls are open, the headers of HTTP/2's frames are read on the way: nine bytes of each 16 kB.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator

from pathways_jupyter.tunnel.local_connection import LocalConnection

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _RST_STREAM, _SETTINGS = 1, 3, 4
_END_STREAM, _END_HEADERS = 1, 4
# The length in three bytes, type, flags and stream.
_HEADER = struct.Struct(">BHBBI")
_STREAM_BITS = 0x7FFFFFFF
_HEADER_TABLE_BYTES, _ALLOW_TRUE_BINARY_METADATA = 1, 0xFE03
"""Settings for the headers of calls that JAX begins before it knows the proxy's: no table, which the embedded proxy has
not, and bytes as they are, as all servers of gRPC take them."""
_FIRST = _HEADER.pack(0, 12, _SETTINGS, 0, 0) + struct.pack(
    ">HIHI", _HEADER_TABLE_BYTES, 0, _ALLOW_TRUE_BINARY_METADATA, 1
)
_ANSWER_TO_FIRST = _HEADER.pack(0, 0, _SETTINGS, 1, 0)


def _field(name: bytes, value: bytes) -> bytes:
    """Encode a header that no table of HPACK knows, and which enters none."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


_UNAVAILABLE = _field(b"grpc-status", b"14") + _field(b"grpc-message", b"The connection to the proxy is lost.")
# Without an answer before, the end of a call is the whole answer; 0x88 is status 200.
_WHOLE_ANSWER = b"\x88" + _field(b"content-type", b"application/grpc") + _UNAVAILABLE

_ALONE = 3
"""Number of calls that are ended one by one: not each is an upload."""
_APART_SECONDS = 0.02
"""Time for the client to close each of them."""


class _Frames:
    """The frames of one direction, of which only the headers are read.

    Args:
      ahead: Bytes before the first frame.
    """

    def __init__(self, ahead: int = 0) -> None:
        self._ahead = ahead
        self._head = b""

    @property
    def is_whole(self) -> bool:
        """Return whether the last byte that was seen ended a frame."""
        return not self._ahead and not self._head

    def headers(self, data: bytes | memoryview) -> Iterator[tuple[int, int, int]]:
        """Return the type, flags and stream of each frame whose header ends in `data`."""
        if self._head:
            missing = _HEADER.size - len(self._head)
            self._head += data[:missing]
            data = data[missing:]
            if len(self._head) < _HEADER.size:
                return
            high, low, kind, flags, stream = _HEADER.unpack(self._head)
            self._head, self._ahead = b"", high << 16 | low
            yield kind, flags, stream & _STREAM_BITS
        at, size = self._ahead, len(data)
        while at + _HEADER.size <= size:
            high, low, kind, flags, stream = _HEADER.unpack_from(data, at)
            at += _HEADER.size + (high << 16 | low)
            yield kind, flags, stream & _STREAM_BITS
        self._ahead = max(0, at - size)
        self._head = bytes(data[at:])


class _Beginning:
    """The bytes that JAX sends until it has answered the first frame, without that answer."""

    def __init__(self) -> None:
        self._kept = b""
        self._next = len(_PREFACE)
        self.is_over = False

    def pass_on(self, data: bytes) -> bytes:
        """Return what of `data`, and of what was kept, goes to the proxy; the beginning of a frame's header is kept."""
        data, self._kept = self._kept + data, b""
        at = self._next
        while at + _HEADER.size <= len(data):
            if data[at : at + _HEADER.size] == _ANSWER_TO_FIRST:
                self.is_over = True
                return data[:at] + data[at + _HEADER.size :]
            high, low, *_ = _HEADER.unpack_from(data, at)
            at += _HEADER.size + (high << 16 | low)
        if at < len(data):
            self._next, self._kept = 0, data[at:]
            return data[:at]
        self._next = at - len(data)
        return data


class GrpcConnection(LocalConnection):
    """One connection of JAX to the proxy; one task may read, and one may write.

    Args:
      accepted: Called with this object when the connection is there.
    """

    def __init__(self, accepted: Callable[[LocalConnection], None]) -> None:
        super().__init__(accepted)
        self._sent, self._received = _Frames(len(_PREFACE)), _Frames()
        self._beginning: _Beginning | None = None
        # Those that are open, in the order in which they began, and whether an answer has begun.
        self._calls: dict[int, bool] = {}
        self._ending: asyncio.Future[None] | None = None

    async def write(self, data: memoryview) -> None:
        """Send `data`, which must not change afterwards, to JAX; wait while it reads slowly.

        Raises:
          ConnectionError: The connection has ended, or is ending.
        """
        if self._ending is not None:
            raise ConnectionResetError("The connection is ending")
        for kind, flags, stream in self._received.headers(data):
            if kind == _RST_STREAM or (kind == _HEADERS and flags & _END_STREAM):
                self._calls.pop(stream, None)
            elif kind == _HEADERS and stream in self._calls:
                self._calls[stream] = True
        await super().write(data)

    async def end(self, *, broken: bool) -> None:
        """End a few calls one after another, and then the connection.

        Args:
          broken: Whether something may be missing: the local program must not take a short answer for a complete one.
        """
        if self._ending is not None:
            await asyncio.wait({self._ending})
            return
        self._ending = asyncio.get_running_loop().create_future()
        try:
            # Between two frames only: otherwise this would be taken for the rest of an answer.
            if self._received.is_whole and len(self._calls) > 1:
                for call, answered in list(self._calls.items())[: -_ALONE - 1 : -1]:
                    end = _UNAVAILABLE if answered else _WHOLE_ANSWER
                    # Past write(), which refuses from here on.
                    self._transport.write(_HEADER.pack(0, len(end), _HEADERS, _END_STREAM | _END_HEADERS, call) + end)
                    await asyncio.sleep(_APART_SECONDS)
        finally:
            await super().end(broken=broken)
            self._ending.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Keep a piece for the reader, and note which calls begin and end in it."""
        if self._beginning is None:
            self._beginning = _Beginning()
            # In one piece, as gRPC sends it; what is not gRPC is carried as it is.
            self._beginning.is_over = not data.startswith(_PREFACE)
            if not self._beginning.is_over:
                self._transport.write(_FIRST)
        if not self._beginning.is_over and not (data := self._beginning.pass_on(data)):
            return
        super().data_received(data)
        for kind, _, stream in self._sent.headers(data):
            if kind == _HEADERS:
                self._calls.setdefault(stream, False)
            elif kind == _RST_STREAM:
                self._calls.pop(stream, None)
