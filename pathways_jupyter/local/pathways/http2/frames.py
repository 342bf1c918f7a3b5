"""HTTP/2 frames: kinds, flags and settings."""

from __future__ import annotations

import enum
import struct

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


def header(length: int, kind: FrameType, flags: int, stream: int) -> bytes:
    """Return the nine-byte head of a frame."""
    return struct.pack(">HBBBI", length >> 8, length & 0xFF, kind, flags, stream)


def frame(kind: FrameType, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a whole frame, for small ones."""
    return header(len(payload), kind, flags, stream) + payload


def window_update(stream: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame; stream 0 is the connection."""
    return frame(FrameType.WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))
