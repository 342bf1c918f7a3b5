"""Host buffers: the bytes of arrays on their way, which travel apart from the requests that speak of them.

A request may arrive before its buffer; it then gets a promise that is settled when the buffer has come. Most of a
client's bytes come this way, so that they are copied once: from where the socket put them into memory that XLA then
uses as it is.
"""

from __future__ import annotations

import threading

from pathways_jupyter.local.pathways.ifrt import promises, statuses
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.statuses import Code, StatusError
from pathways_jupyter.local.pathways.sidecar.sidecar_protocol import aligned

_ENDED = StatusError(Code.CANCELLED, "the session has ended")


class HostBuffers:
    """The buffers of one session, by their handle."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffers: dict[int, Promise] = {}
        self._ended = False

    def put(self, handle: int, data: memoryview) -> None:
        """Keeps `data`, from the client or for it."""
        with self._lock:
            if self._ended:
                return
            promise = self._buffers.setdefault(handle, Promise())
        promise.settle(data)

    def take(self, handle: int) -> Promise:
        """The buffer that the client sends, now or later; it is handed out once."""
        with self._lock:
            if self._ended:
                return promises.failed(_ENDED)
            promise = self._buffers.get(handle)
            if promise is None:
                promise = self._buffers[handle] = Promise()
        promise.then(lambda: self.delete(handle))
        return promise

    def look_up(self, handle: int) -> memoryview:
        """A buffer that is here.

        Raises:
          StatusError: NOT_FOUND.
        """
        promise = self._buffers.get(handle)
        if promise is None or not promise.settled:
            raise statuses.not_found(f"there is no host buffer {handle}")
        data: memoryview = promise.get()
        return data

    def delete(self, handle: int) -> None:
        """Forgets a buffer, if it is there."""
        with self._lock:
            self._buffers.pop(handle, None)

    def end(self) -> None:
        """Forgets all, and fails whatever still waits for a buffer."""
        with self._lock:
            self._ended = True
            waiting = list(self._buffers.values())
            self._buffers.clear()
        for promise in waiting:
            promise.fail(_ENDED)


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
