"""Host buffers: the bytes of arrays on their way, which travel apart from the requests that speak of them.

A request may arrive before its buffer; it then gets a promise that is settled when the buffer has come. Most of a
client's bytes come this way, so that they are copied once: from where the socket put them into memory that XLA then
uses as it is.
"""

from __future__ import annotations

import threading

from pathways_jupyter.local.pathways.ifrt import promises, statuses
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.statuses import Code, IfrtStatusError
from pathways_jupyter.local.pathways.sidecar_protocol import aligned

_ENDED = IfrtStatusError(Code.CANCELLED, "the session has ended")


class HostBuffers:
    """The buffers of one session, by their handle."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffers: dict[int, Promise] = {}
        self._ended = False

    def put(self, handle: int, data: memoryview) -> None:
        """Keep `data`, from the client or for it."""
        with self._lock:
            if self._ended:
                return
            promise = self._buffers.setdefault(handle, Promise())
        promise.settle(data)

    def take(self, handle: int) -> Promise:
        """Return the buffer that the client sends, now or later; it is handed out once."""
        with self._lock:
            if self._ended:
                return promises.failed(_ENDED)
            promise = self._buffers.get(handle)
            if promise is None:
                promise = self._buffers[handle] = Promise()
        promise.then(lambda: self.delete(handle))
        return promise

    def look_up(self, handle: int) -> memoryview:
        """Return a buffer that is here."""
        promise = self._buffers.get(handle)
        if promise is None:
            raise statuses.invalid(f"there is no host buffer with the handle {handle}")
        data: memoryview = promise.get()
        return data

    def delete(self, handle: int) -> None:
        """Forget a buffer, if it is there."""
        with self._lock:
            self._buffers.pop(handle, None)

    def end(self) -> None:
        """Forget all, and fail whatever still waits for a buffer."""
        with self._lock:
            self._ended = True
            waiting = list(self._buffers.values())
            self._buffers.clear()
        for promise in waiting:
            promise.fail(_ENDED)


_DATA_TAG = 1 << 3 | 2  # field 1, length-delimited


class Upload:
    """A buffer of a known size, to be filled by messages that each hold one chunk.

    Args:
      size: In bytes, as the client announced it.
    """

    def __init__(self, size: int) -> None:
        self.data = aligned(size)
        self._position = 0
        self._head_length = 0
        self._in_head = False

    def begin(self, length: int) -> None:
        """Begin a message of `length` bytes."""
        self._in_head = length > 0
        self._head_length = 0

    def piece(self, piece: memoryview) -> None:
        """Add the message's next bytes."""
        while self._in_head and piece:
            # A tag, then a length that ends with the first byte below 0x80.
            self._head_length += 1
            self._in_head = self._head_length == 1 or piece[0] >= 0x80
            piece = piece[1:]
        end = self._position + len(piece)
        self.data[self._position : end] = piece
        self._position = end


def chunk_head(length: int) -> bytes:
    """Return what stands before the data in a message that holds one chunk."""
    head = bytearray([_DATA_TAG])
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head)
