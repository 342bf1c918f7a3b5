"""HTTP/2 on the wire: frames, and HPACK header blocks without what both sides agree not to use.

That is the dynamic table and Huffman coding.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable
from functools import lru_cache

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of every connection."""

HEADER_SIZE = 9
LARGEST_WINDOW = (1 << 31) - 1
FIRST_WINDOW = 65535
SMALLEST_FRAME_LIMIT = 1 << 14

END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4


class FrameType(enum.IntEnum):
    """Frame types of gRPC's clients; all others are ignored, as HTTP/2 requires."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    WINDOW_UPDATE = 8


class Setting(enum.IntEnum):
    """The settings that matter here."""

    HEADER_TABLE_SIZE = 1
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    ALLOW_TRUE_BINARY_METADATA = 0xFE03
    """gRPC's own: binary metadata may be sent raw instead of as base64 with Huffman coding."""


def frame_head(length: int, kind: FrameType, flags: int, stream: int) -> bytes:
    """Return the nine-byte head of a frame."""
    return struct.pack(">HBBBI", length >> 8, length & 0xFF, kind, flags, stream)


def frame(kind: FrameType, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a whole frame, for small ones."""
    return frame_head(len(payload), kind, flags, stream) + payload


def window_update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame; stream 0 is the connection."""
    return frame(FrameType.WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


Header = tuple[bytes, bytes]

# RFC 7541, appendix A: 61 entries; one with a value has it behind a space.
_STATIC = [
    (name, value)
    for name, _, value in (
        entry.partition(b" ")
        for entry in (
            b":authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200|"
            b":status 204|:status 206|:status 304|:status 400|:status 404|:status 500|accept-charset|"
            b"accept-encoding gzip, deflate|accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|"
            b"authorization|cache-control|content-disposition|content-encoding|content-language|content-length|"
            b"content-location|content-range|content-type|cookie|date|etag|expect|expires|from|host|if-match|"
            b"if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|link|location|max-forwards|"
            b"proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|server|set-cookie|"
            b"strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"
        ).split(b"|")
    )
]


def encode_headers(fields: Iterable[Header]) -> bytes:
    """Encode a header block that any decoder understands: literal fields that do not change its table."""
    block = bytearray()
    for name, value in fields:
        block.append(0)
        for text in (name, value):
            block.append(min(len(text), 0x7F))
            rest = len(text) - 0x7F
            while rest >= 0x80:
                block.append(rest & 0x7F | 0x80)
                rest >>= 7
            if rest >= 0:
                block.append(rest)
            block += text
    return bytes(block)


@lru_cache(maxsize=256)
def decode_headers(block: bytes) -> tuple[Header, ...]:
    """Decode a header block; cached, because a client sends nearly the same one every time.

    Raises:
      ValueError, IndexError: It uses what was not agreed on.
    """
    fields: list[Header] = []
    position = 0
    while position < len(block):
        first = block[position]
        if first & 0x80:
            index, position = _read_integer(block, position, 7)
            fields.append(_STATIC[index - 1])
        elif first & 0xE0 == 0x20:
            # The size of the dynamic table: 0, as this side asked for.
            _, position = _read_integer(block, position, 5)
        else:
            index, position = _read_integer(block, position, 6 if first & 0x40 else 4)
            if index:
                name = _STATIC[index - 1][0]
            else:
                name, position = _read_text(block, position)
            value, position = _read_text(block, position)
            # gRPC marks raw binary metadata by a leading zero byte.
            fields.append((name, value[1:] if name.endswith(b"-bin") and value[:1] == b"\0" else value))
    return tuple(fields)


def _read_text(block: bytes, position: int) -> tuple[bytes, int]:
    if block[position] & 0x80:
        raise ValueError("a header uses Huffman coding")
    length, position = _read_integer(block, position, 7)
    return block[position : position + length], position + length


def _read_integer(block: bytes, position: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value = block[position] & most
    position += 1
    if value < most:
        return value, position
    shift = 0
    while True:
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
