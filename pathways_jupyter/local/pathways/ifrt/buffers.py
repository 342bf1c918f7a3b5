"""Host buffers: the bytes of arrays on their way, which travel apart from the requests that speak of them.

A request may arrive before its buffer; it then gets a promise that is settled when the buffer has come.
"""

from __future__ import annotations

import threading

from pathways_jupyter.local.pathways.ifrt import promises, statuses
from pathways_jupyter.local.pathways.ifrt.promises import Promise
from pathways_jupyter.local.pathways.ifrt.statuses import Code, StatusError

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

    def __len__(self) -> int:
        return len(self._buffers)
