"""Listeners of a publisher, isolated from it: an error in one of them does not stop the publisher.

A listener often belongs to something that can disappear at any moment, such as a WebSocket or a widget in a notebook.
Without the isolation, its error would end the task that watches a cluster or a session for all others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Listener = Callable[[Message], None]

logger = logging.getLogger(__name__)


class Listeners:
    """A set of listeners. One that raises is removed, because after a missed message it would show wrong data.

    A listener that can recover has to catch its own errors.
    """

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def __contains__(self, listener: Listener) -> bool:
        return listener in self._listeners

    def add(self, listener: Listener) -> None:
        """Send every message to `listener` from now on."""
        self._listeners.add(listener)

    def remove(self, listener: Listener) -> None:
        """Send `listener` nothing more; no-op if it is not there."""
        self._listeners.discard(listener)

    def clear(self) -> None:
        """Remove all listeners."""
        self._listeners.clear()

    def publish(self, message: Message) -> None:
        """Send `message` to all listeners. Never raises."""
        # A copy, because a listener may remove itself or others during the loop; removed ones get no message.
        for listener in list(self._listeners):
            if listener in self._listeners:
                self.send(listener, message)

    def send(self, listener: Listener, message: Message) -> None:
        """Send `message` to one listener. Never raises."""
        try:
            listener(message)
        except Exception:
            logger.exception("a listener failed and gets no more messages")
            self._listeners.discard(listener)
