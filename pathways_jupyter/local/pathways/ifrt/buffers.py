"""Host buffers: the bytes of arrays on their way, which travel apart from the requests that speak of them.

A request may arrive before its buffer; it then gets a cell that is settled when the buffer has come.
"""

from __future__ import annotations

import threading

from pathways_jupyter.local.pathways.ifrt import cells, statuses
from pathways_jupyter.local.pathways.ifrt.cells import Cell
from pathways_jupyter.local.pathways.ifrt.statuses import Code, StatusError

_ENDED = StatusError(Code.CANCELLED, "the session has ended")


class HostBuffers:
    """The buffers of one session, by their handle."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffers: dict[int, Cell] = {}
        self._ended = False

    def put(self, handle: int, data: memoryview) -> None:
        """Keeps `data`, from the client or for it."""
        with self._lock:
            if self._ended:
                return
            cell = self._buffers.setdefault(handle, Cell())
        cell.settle(data)

    def take(self, handle: int) -> Cell:
        """The buffer that the client sends, now or later; it is handed out once."""
        with self._lock:
            if self._ended:
                return cells.failed(_ENDED)
            cell = self._buffers.get(handle)
            if cell is None:
                cell = self._buffers[handle] = Cell()
        cell.then(lambda: self.delete(handle))
        return cell

    def look_up(self, handle: int) -> memoryview:
        """A buffer that is here.

        Raises:
          StatusError: NOT_FOUND.
        """
        cell = self._buffers.get(handle)
        if cell is None or not cell.settled:
            raise statuses.not_found(f"there is no host buffer {handle}")
        data: memoryview = cell.get()
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
        for cell in waiting:
            cell.fail(_ENDED)

    def __len__(self) -> int:
        return len(self._buffers)
