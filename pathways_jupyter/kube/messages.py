"""Whole messages over a WebSocket, with a bounded number of bytes waiting on either side."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from pathways_jupyter.errors import ClusterError
from pathways_jupyter.kube.websocket import WebSocket, lost


class Messages:
    """A receiver for those who want whole messages, and a sender that waits while the way out is full.

    Args:
      limit: Bytes held for a slow reader before the server is told to wait.
    """

    def __init__(self, *, limit: int = 1024 * 1024) -> None:
        self.socket: WebSocket | None = None
        self._limit = limit
        self._messages: deque[bytes] = deque()
        self._partial: list[bytes] = []
        self._held = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._ended = False
        self._error: ClusterError | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._iterate()

    async def send(self, *parts: bytes) -> None:
        """Sends one binary message.

        Raises:
          ConnectionLost: There is no connection any more.
        """
        await self._room.wait()
        if self._ended:
            raise self._error or lost("the server closed it")
        assert self.socket is not None
        self.socket.send(*parts)

    def close(self) -> None:
        """Says goodbye."""
        if self.socket is not None:
            self.socket.close()

    def payload(self, data: memoryview, *, first: bool, last: bool) -> None:
        """See :class:`Receiver`."""
        self._partial.append(bytes(data))
        self._held += len(data)
        if last:
            self._messages.append(b"".join(self._partial))
            self._partial = []
            self._arrived.set()
        # A message that is larger than the limit must still be able to become whole.
        if self._held > self._limit and self._messages and self.socket is not None:
            self.socket.pause_reading()

    def holds_bytes(self) -> bool:
        """See :class:`Receiver`."""
        return False

    def closed(self, error: ClusterError | None) -> None:
        """See :class:`Receiver`."""
        self._ended, self._error = True, error
        self._arrived.set()
        self._room.set()

    def pause(self) -> None:
        """See :class:`Receiver`."""
        self._room.clear()

    def resume(self) -> None:
        """See :class:`Receiver`."""
        self._room.set()

    async def _iterate(self) -> AsyncIterator[bytes]:
        while True:
            while self._messages:
                message = self._messages.popleft()
                self._held -= len(message)
                if self._held <= self._limit and self.socket is not None:
                    self.socket.resume_reading()
                yield message
            if self._ended:
                if self._error is not None:
                    raise self._error
                return
            self._arrived.clear()
            await self._arrived.wait()
