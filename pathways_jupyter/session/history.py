"""What happened to one session: remembered for those who come later, handed on to those who listen.

A listener that does not read must never hold up the supervisor, so its connection gets only as much as it takes.
"""

from __future__ import annotations

import asyncio
from collections import deque

from pathways_jupyter.events import Event
from pathways_jupyter.session import protocol

REMEMBERED = 1000
_UNREAD_BYTES = 4 << 20


class History:
    """The events of one session, and who listens to them."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=REMEMBERED)
        self._listeners: set[asyncio.StreamWriter] = set()

    def add(self, event: Event) -> None:
        """Remembers `event` and tells all listeners."""
        self._events.append(event)
        line = protocol.encode(event)
        for writer in list(self._listeners):
            self._tell(writer, line)

    def listen(self, writer: asyncio.StreamWriter, *, replay: bool = True) -> None:
        """From now on `writer` gets every event, the remembered ones first."""
        if replay:
            for event in self._events:
                self._tell(writer, protocol.encode(event))
        self._listeners.add(writer)

    def leave(self, writer: asyncio.StreamWriter) -> None:
        """`writer` gets nothing any more."""
        self._listeners.discard(writer)

    def _tell(self, writer: asyncio.StreamWriter, line: bytes) -> None:
        if writer.is_closing() or writer.transport.get_write_buffer_size() > _UNREAD_BYTES:
            # A stopped process: it may read on from where it was once it goes on, without what did not fit.
            return
        writer.write(line)
