"""The listeners of a publisher, kept apart from it: whatever one of them raises, publishing goes on.

A listener is often the far end of something that may go away at any moment (a WebSocket, a widget in a notebook). An
error that travelled up from it would end the task that follows a cluster or a session for everyone else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Listener = Callable[[Message], None]

logger = logging.getLogger(__name__)


class Listeners:
    """A set of listeners. One that raises is removed: it has missed a message, so what it shows is wrong from then on.

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
        # A copy, because a listener may remove itself or another one; which is then left out.
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
