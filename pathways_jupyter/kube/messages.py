"""Whole messages over a WebSocket, with bounded buffers in both directions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from pathways_jupyter.errors import ClusterError
from pathways_jupyter.kube.websocket import WebSocket, lost


class Messages:
    """A queue of received messages, and a sender that waits while the write buffer is full.

    Args:
      limit: Bytes buffered for a slow reader before reading from the socket pauses.
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
        """Send one binary message.

        Raises:
          ConnectionLost: The connection has ended.
        """
        await self._room.wait()
        if self._ended:
            raise self._error or lost("the server closed it")
        assert self.socket is not None
        self.socket.send(*parts)

    def close(self) -> None:
        """Close the WebSocket properly."""
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
        # Only with a whole message in the queue: one that is larger than the limit must still be completed.
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
