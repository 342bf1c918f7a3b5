"""Server side of WebSocket framing (RFC 6455) for tunnels; passes data on in pieces, without assembling messages.

A library that assembles messages holds each until its last byte is there, and copies it on the way; a tunnel wants
neither. Everything that is not a tunnel uses the library.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable
from enum import IntEnum

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_NO_MASK = bytes(4)
_LARGEST = 1 << 40
_SMALL = 1024


class Opcode(IntEnum):
    """Opcodes of frames."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class FrameError(Exception):
    """The client broke the protocol."""


def accept_key(key: str) -> str:
    """The ``Sec-WebSocket-Accept`` value of a client's key."""
    return base64.b64encode(hashlib.sha1(key.encode("latin-1") + _GUID, usedforsecurity=False).digest()).decode()


def frame_head(opcode: Opcode, size: int) -> bytes:
    """The head of an unmasked frame with `size` bytes of payload."""
    if size < 126:
        return bytes((0x80 | opcode, size))
    if size < 1 << 16:
        return struct.pack(">BBH", 0x80 | opcode, 126, size)
    return struct.pack(">BBQ", 0x80 | opcode, 127, size)


class FrameReader:
    """Parses bytes into pieces of messages.

    Args:
      on_piece: Gets a piece of a message, and whether it is the message's first.
      on_control: Gets a control frame and its whole payload.
    """

    def __init__(
        self, on_piece: Callable[[memoryview, bool], None], on_control: Callable[[Opcode, bytes], None]
    ) -> None:
        self._on_piece = on_piece
        self._on_control = on_control
        self._rest = b""
        self._left = 0
        self._mask = _NO_MASK
        self._fresh = True
        self._open = False

    def feed(self, data: bytes) -> None:
        """Parse received bytes.

        Raises:
          FrameError: It is no sequence of frames as a client sends them.
        """
        if self._rest:
            data, self._rest = self._rest + data, b""
        view, position = memoryview(data), 0
        while position < len(view):
            if self._left == 0:
                size = self._begin(view[position:])
                if size == 0:
                    self._rest = bytes(view[position:])
                    return
                position += size
                continue
            piece = view[position : position + self._left]
            position += len(piece)
            self._left -= len(piece)
            self._on_piece(self._unmasked(piece), self._fresh)
            self._fresh = False

    def _begin(self, view: memoryview) -> int:
        """Read a frame's head, or a whole control frame; return the bytes consumed, 0 when more are needed."""
        if len(view) < 2:
            return 0
        first, second = view[0], view[1]
        if first & 0x70 or not second & 0x80:
            raise FrameError("reserved bits, or a frame without a mask")
        size, head = second & 0x7F, 6
        if size >= 126:
            width = 2 if size == 126 else 8
            head += width
            if len(view) < head:
                return 0
            size = int.from_bytes(view[2 : 2 + width], "big")
        if len(view) < head:
            return 0
        try:
            opcode = Opcode(first & 0x0F)
        except ValueError as error:
            raise FrameError(f"an unknown opcode {first & 0x0F}") from error
        final = bool(first & 0x80)
        mask = bytes(view[head - 4 : head])
        if opcode >= Opcode.CLOSE:
            return self._control(opcode, view, head, size, mask, final)
        if (opcode is Opcode.CONTINUATION) is not self._open or size > _LARGEST:
            raise FrameError("an unexpected opcode, or a message that is too large")
        self._left, self._mask, self._open = size, mask, not final
        self._fresh = self._fresh if opcode is Opcode.CONTINUATION else True
        if size == 0 and final and self._fresh:
            # An empty message has to be reported too.
            self._on_piece(view[:0], True)
            self._fresh = False
        return head

    def _control(self, opcode: Opcode, view: memoryview, head: int, size: int, mask: bytes, final: bool) -> int:
        if size > 125 or not final:
            raise FrameError("a control frame that is too large")
        if len(view) < head + size:
            return 0
        self._on_control(opcode, bytes(_xor(view[head : head + size], mask)))
        return head + size

    def _unmasked(self, piece: memoryview) -> memoryview:
        if self._mask == _NO_MASK:
            return piece
        plain = _xor(piece, self._mask)
        turn = len(piece) % 4
        self._mask = self._mask[turn:] + self._mask[:turn]
        return plain


def _xor(data: memoryview, mask: bytes) -> memoryview:
    key = (mask * (len(data) // 4 + 1))[: len(data)]
    if len(data) < _SMALL:
        whole = int.from_bytes(data, "little") ^ int.from_bytes(key, "little")
        return memoryview(whole.to_bytes(len(data), "little"))
    # This project's own tunnels send a zero mask. Other clients' bulk data is worth importing numpy for.
    import numpy as np

    return np.bitwise_xor(np.frombuffer(data, np.uint8), np.frombuffer(key, np.uint8)).data
