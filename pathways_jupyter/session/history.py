"""The events of one session: remembered for clients that come later, sent to those that listen.

A listener that does not read must never hold up the supervisor, so its connection gets only as much as it takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from pathways_jupyter.events import Event
from pathways_jupyter.session import protocol

logger = logging.getLogger(__name__)

REMEMBERED = 1000
_UNREAD_BYTES = 4 << 20


class History:
    """The events of one session, and its listeners."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=REMEMBERED)
        self._listeners: set[asyncio.StreamWriter] = set()

    def add(self, event: Event) -> None:
        """Remember `event` and send it to all listeners."""
        self._events.append(event)
        line = protocol.encode(event)
        for writer in list(self._listeners):
            self._send(writer, line)

    def listen(self, writer: asyncio.StreamWriter, *, replay: bool = True) -> None:
        """Send every event to `writer` from now on, the remembered ones first."""
        self._listeners.add(writer)
        if replay:
            for event in self._events:
                self._send(writer, protocol.encode(event))

    def leave(self, writer: asyncio.StreamWriter) -> None:
        """Send nothing to `writer` any more."""
        self._listeners.discard(writer)

    def _send(self, writer: asyncio.StreamWriter, line: bytes) -> None:
        try:
            if writer.is_closing() or writer.transport.get_write_buffer_size() > _UNREAD_BYTES:
                # A stopped process: it may read on from where it was once it goes on, without what did not fit.
                return
            writer.write(line)
        except Exception:
            # A listener's fault must reach neither the publisher nor the other listeners.
            logger.exception("a listener failed; it gets no more events")
            self._listeners.discard(writer)
