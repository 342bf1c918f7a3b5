"""Puts the chunks of a host buffer where they belong, as they come in.

Most of a client's bytes come this way, so that they are copied once: from where the socket put them into memory that
XLA then uses as it is.
"""

from __future__ import annotations

from pathways_jupyter.local.pathways.aligned import aligned
from pathways_jupyter.local.pathways.ifrt import statuses

_LARGEST = 1 << 40
_DATA_TAG = 1 << 3 | 2  # field 1, length-delimited


class Upload:
    """A buffer of a known size, to be filled by messages that each hold one chunk.

    Args:
      size: In bytes, as the client announced it.

    Raises:
      StatusError: That is no size.
    """

    def __init__(self, size: int) -> None:
        if not 0 <= size <= _LARGEST:
            raise statuses.invalid(f"{size} is not the size of a buffer")
        self._data = aligned(size)
        self._position = 0
        self._head = b""
        self._in_head = False

    def begin(self, length: int) -> None:
        """A message of `length` bytes begins."""
        self._in_head = length > 0
        self._head = b""

    def piece(self, piece: memoryview) -> None:
        """The message's next bytes.

        Raises:
          StatusError: It is not a chunk, or the chunks are larger than the buffer.
        """
        while self._in_head and piece:
            # A tag, then a length that ends with the first byte below 0x80.
            self._head += piece[:1]
            piece = piece[1:]
            self._in_head = len(self._head) == 1 or self._head[-1] >= 0x80
            if self._head[0] != _DATA_TAG or len(self._head) > 11:
                raise statuses.invalid("a chunk of a host buffer must hold its data and nothing else")
        end = self._position + len(piece)
        if end > len(self._data):
            raise statuses.invalid(f"more than the announced {len(self._data)} bytes were sent")
        self._data[self._position : end] = piece
        self._position = end

    def finish(self) -> memoryview:
        """The full buffer.

        Raises:
          StatusError: It is not full.
        """
        if self._position != len(self._data):
            raise statuses.invalid(f"{self._position} of {len(self._data)} bytes were sent")
        return self._data


def chunk_head(length: int) -> bytes:
    """What stands before the data in a message that holds one chunk."""
    head = bytearray([_DATA_TAG])
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head)
