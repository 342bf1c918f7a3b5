"""Feeds: something that is watched for listeners, as long as there are any.

A listener often belongs to something that can disappear at any moment, such as a WebSocket or a widget in a notebook.
Without the isolation here, its error would end the task that watches a cluster or a session for all others.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Message = dict[str, Any]
Listener = Callable[[Message], None]
Row = dict[str, Any]

logger = logging.getLogger(__name__)


class Feed(ABC):
    """Watches from the first listener on, until the last one has left; used in one event loop.

    A listener that raises is removed, because after a missed message it would show wrong data. One that can recover has
    to catch its own errors.
    """

    keeps_running = False
    """True if it goes on without listeners, until :meth:`stop`."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        # What is followed besides, by a key of the subclass; ended with the feed.
        self._followers: dict[str, asyncio.Task[None]] = {}

    @abstractmethod
    async def _watch(self) -> None:
        """Publish every change, until cancelled."""

    @abstractmethod
    def _snapshot(self) -> Iterable[Message]:
        """Return what brings a new listener up to date; nothing while nothing is known."""

    @property
    def has_listeners(self) -> bool:
        """Return whether there are listeners."""
        return bool(self._listeners)

    def add(self, listener: Listener) -> None:
        """Send `listener` the present state as soon as it is known, then every change."""
        self._listeners.add(listener)
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        for message in self._snapshot():
            self._send(listener, message)

    def remove(self, listener: Listener) -> None:
        """Send `listener` nothing more; no-op if it is not there."""
        self._listeners.discard(listener)
        if not self._listeners and not self.keeps_running:
            self.stop()

    def stop(self) -> list[asyncio.Task[None]]:
        """Remove all listeners and end all tasks; return the tasks, which the caller may await."""
        tasks = [task for task in (self._task, *self._followers.values()) if task is not None]
        for task in tasks:
            task.cancel()
        self._task = None
        self._listeners.clear()
        self._followers.clear()
        return tasks

    def publish(self, message: Message) -> None:
        """Send `message` to all listeners. Never raises."""
        # A copy, because a listener may remove itself or others during the loop; removed ones get no message.
        for listener in list(self._listeners):
            self._send(listener, message)

    def _send(self, listener: Listener, message: Message) -> None:
        if listener in self._listeners:
            try:
                listener(message)
            except Exception:
                logger.exception("a listener failed and gets no more messages")
                self._listeners.discard(listener)


def difference(before: Mapping[str, Row], now: Mapping[str, Row]) -> tuple[list[Row], list[str]]:
    """Return the rows to put and the ids to drop to get from `before` to `now`."""
    # Most rows are the same objects as before, which is quicker to see than that they are equal.
    put = [row for key, row in now.items() if (was := before.get(key)) is not row and was != row]
    return put, [key for key in before if key not in now]
