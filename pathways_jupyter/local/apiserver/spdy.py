"""The part of SPDY/3.1 framing that port-forward uses: kubectl sends it in the messages of a WebSocket.

No flow control: neither end of a Kubernetes connection uses SPDY's windows. A slow reader stalls the whole connection,
which is the back-pressure.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow"
    " authorization cache-control connection content-base content-encoding content-language content-length"
    " content-location content-md5 content-range content-type date etag expect expires from host if-match"
    " if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma"
    " proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade"
    " user-agent vary via warning www-authenticate method get status 200~OK version HTTP/1.1 url public set-cookie"
    " keep-alive origin"
)
_CODES = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = (
    b"".join(struct.pack(">I", len(word)) + word.replace("~", " ").encode() for word in _WORDS.split())
    + _CODES.encode()
)
"""The dictionary of header compression, defined by the protocol."""

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY, _HEADERS = 1, 2, 3, 6, 7, 8
_FIN = 1
_CONTROL = 0x80000000
_REFUSED = 3
_LARGEST_CONTROL = 64 * 1024
_LARGEST_DATA = 16 * 1024 * 1024


class SpdyError(Exception):
    """The peer does not speak SPDY."""


class SpdyStream:
    """One stream of a connection.

    `sink` receives what the peer sends. Set it in `on_stream`, before any await. An empty piece means that the peer has
    closed its side.
    """

    def __init__(self, connection: SpdyConnection, number: int, headers: Mapping[str, str]) -> None:
        self.number = number
        self.headers = headers
        self.sink: Callable[[bytes], Awaitable[None]] | None = None
        self._connection = connection
        self._closed = False

    async def write(self, data: bytes) -> None:
        """Send `data`."""
        if not self._closed:
            await self._connection.send_data(self.number, data, 0)

    async def close(self) -> None:
        """Close this side of the stream."""
        if not self._closed:
            self._closed = True
            await self._connection.send_data(self.number, b"", _FIN)


class SpdyConnection:
    """Server side of a connection.

    Args:
      send: Sends bytes to the peer, and waits until it has taken enough of them.
      on_stream: Called for every stream that the peer opens; False refuses it.
    """

    def __init__(self, send: Callable[[bytes], Awaitable[None]], on_stream: Callable[[SpdyStream], bool]) -> None:
        self.streams: dict[int, SpdyStream] = {}
        self._send = send
        self._on_stream = on_stream
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    async def feed(self, data: bytes | memoryview) -> None:
        """Handle what the peer sent, and wait while a stream's sink does not take its part.

        Raises:
          SpdyError: It is not SPDY.
        """
        self._buffer += data
        for head, flags, payload in self._frames():
            if head & _CONTROL:
                await self._control(head >> 16 & 0x7FFF, head & 0xFFFF, flags, payload)
            elif (stream := self.streams.get(head)) is not None and stream.sink is not None:
                if payload:
                    await stream.sink(payload)
                if flags & _FIN:
                    await stream.sink(b"")

    async def send_data(self, number: int, data: bytes, flags: int) -> None:
        """Send a data frame."""
        await self._send(struct.pack(">II", number, flags << 24 | len(data)) + data)

    def _frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield complete frames: the first word, the flags and the payload of each."""
        start = 0
        try:
            while len(self._buffer) - start >= 8:
                head, size = struct.unpack_from(">II", self._buffer, start)
                length = size & 0xFFFFFF
                if length > (_LARGEST_CONTROL if head & _CONTROL else _LARGEST_DATA):
                    raise SpdyError(f"a frame of {length} bytes")
                if len(self._buffer) - start < 8 + length:
                    break
                with memoryview(self._buffer) as view:
                    payload = bytes(view[start + 8 : start + 8 + length])
                yield head, size >> 24, payload
                start += 8 + length
        finally:
            del self._buffer[:start]

    async def _control(self, version: int, kind: int, flags: int, payload: bytes) -> None:
        if version != 3:
            raise SpdyError(f"SPDY version {version}")
        try:
            if kind == _SYN_STREAM:
                await self._open(flags, payload)
            elif kind == _RST_STREAM:
                stream = self.streams.pop(struct.unpack_from(">I", payload)[0] & 0x7FFFFFFF, None)
                if stream is not None and stream.sink is not None:
                    await stream.sink(b"")
            elif kind == _PING:
                await self._send(_control_frame(_PING, payload[:4]))
            elif kind in (_HEADERS, _SYN_REPLY):
                self._headers(payload[4:])
        except (struct.error, zlib.error, UnicodeDecodeError) as error:
            raise SpdyError(f"a malformed control frame of kind {kind}: {error}") from error

    async def _open(self, flags: int, payload: bytes) -> None:
        number = struct.unpack_from(">I", payload)[0] & 0x7FFFFFFF
        stream = SpdyStream(self, number, self._headers(payload[10:]))
        if number in self.streams or not number % 2:
            raise SpdyError(f"stream {number} opened out of turn")
        self.streams[number] = stream
        if not self._on_stream(stream):
            del self.streams[number]
            await self._send(_control_frame(_RST_STREAM, struct.pack(">II", number, _REFUSED)))
            return
        block = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self._send(_control_frame(_SYN_REPLY, struct.pack(">I", number) + block))
        if flags & _FIN and stream.sink is not None:
            await stream.sink(b"")

    def _headers(self, block: bytes) -> dict[str, str]:
        plain = self._inflate.decompress(block, _LARGEST_CONTROL)
        count = struct.unpack_from(">I", plain)[0]
        texts: list[str] = []
        position = 4
        for _ in range(2 * count):
            size = struct.unpack_from(">I", plain, position)[0]
            if position + 4 + size > len(plain):
                raise SpdyError("a truncated header block")
            texts.append(plain[position + 4 : position + 4 + size].decode())
            position += 4 + size
        pairs: Any = zip(texts[::2], texts[1::2], strict=True)
        return {name.lower(): value for name, value in pairs}


def _control_frame(kind: int, payload: bytes) -> bytes:
    """Return a control frame without flags."""
    return struct.pack(">HHI", 0x8003, kind, len(payload)) + payload
