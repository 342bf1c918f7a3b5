"""The events of one session: kept for later clients, sent to current listeners.

A listener that does not read must neither block the supervisor nor grow its memory. Beyond a bound it is disconnected,
so that it knows that it missed events and can subscribe again. The owner is never disconnected, because that would end
the session; a kernel that was stopped for so long misses the events that did not fit.

What clients record has a share of its own, so that a training run that loses slices all night does not push out how the
session was connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from pathways_jupyter.events import Event, EventKind
from pathways_jupyter.session import protocol

logger = logging.getLogger(__name__)

REMEMBERED = 1000
RECORDED = 500
"""Most remembered events that clients recorded."""
UNREAD_BYTES = 4 << 20


class History:
    """The events of one session, and its listeners."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=REMEMBERED)
        self._run: Event | None = None
        self._listeners: dict[asyncio.StreamWriter, bool] = {}

    def add(self, event: Event) -> None:
        """Remember `event` and send it to all listeners.

        An :attr:`EventKind.ELASTIC_RUN` replaces the previous one, and does not go back to the kernel, its origin.
        """
        if event.kind is EventKind.ELASTIC_RUN:
            self._run = event
        else:
            self._remember(event)
        line = protocol.encode(event)
        for writer, owner in list(self._listeners.items()):
            if not (owner and event is self._run):
                self._send(writer, line)

    def listen(self, writer: asyncio.StreamWriter, *, replay: bool = True, owner: bool = False) -> None:
        """Send every event to `writer` from now on, the remembered ones first.

        Args:
          owner: Whether `writer` belongs to the kernel, which is never disconnected.
        """
        self._listeners[writer] = owner
        if replay:
            for event in [*self._events, *([self._run] if self._run is not None and not owner else [])]:
                self._send(writer, protocol.encode(event))

    def leave(self, writer: asyncio.StreamWriter) -> None:
        """Remove `writer` from the listeners."""
        self._listeners.pop(writer, None)

    def _remember(self, event: Event) -> None:
        if event.kind is EventKind.ELASTIC:
            recorded = [each for each in self._events if each.kind is EventKind.ELASTIC]
            if len(recorded) >= RECORDED:
                self._events.remove(recorded[0])
        self._events.append(event)

    def _send(self, writer: asyncio.StreamWriter, line: bytes) -> None:
        try:
            if writer.is_closing():
                return
            if writer.transport.get_write_buffer_size() <= UNREAD_BYTES:
                writer.write(line)
            elif not self._listeners.get(writer):
                logger.warning("a listener left more than %d bytes unread and is disconnected", UNREAD_BYTES)
                self.leave(writer)
                # abort() and not close(), which would wait until all of it has been read.
                writer.transport.abort()
        except Exception:
            # A listener's fault must reach neither the publisher nor the other listeners.
            logger.exception("a listener failed; it gets no more events")
            self.leave(writer)
