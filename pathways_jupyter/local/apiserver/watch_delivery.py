"""The objects of each type, and the delivery of their changes to watches.

A change is created once for all watches: its JSON is encoded at most once, and each watch only queues a reference. A
watch that does not keep up is ended rather than allowed to grow without bound; its client lists again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from pathways_jupyter.local.apiserver.api_errors import gone
from pathways_jupyter.local.apiserver.resources import Object, ResourceType, encode
from pathways_jupyter.local.apiserver.selectors import Test

BACKLOG = 50_000
"""Changes that a watch may lag behind before it is ended."""
HISTORY = 20_000
"""Changes of one type that are kept for watches that resume."""


class WatchEventType(StrEnum):
    """Type of a change, as watches report it."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(eq=False, slots=True)
class ObjectState:
    """One state of one object; immutable."""

    object: Object
    _encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """Return the object as JSON."""
        if self._encoded is None:
            self._encoded = encode(self.object)
        return self._encoded

    def encoded_as(self, resource: ResourceType) -> bytes:
        """Return the object as JSON, in this version of its type."""
        obj = resource.of(self.object)
        return self.encoded if obj is self.object else encode(obj)


@dataclass(frozen=True, eq=False, slots=True)
class WatchEvent:
    """One change of one object. Its objects are shared by all watches: read them only."""

    type: WatchEventType
    record: ObjectState
    previous: ObjectState | None
    revision: int

    @property
    def object(self) -> Object:
        """The object after the change; for a deletion, as it was last."""
        return self.record.object

    def seen_through(self, test: Test | None) -> WatchEvent | None:
        """Return this change for a watch of the objects that pass `test`; None when it does not concern that watch."""
        if test is None:
            return self
        before = self.previous is not None and test(self.previous.object)
        if self.type is WatchEventType.DELETED:
            return self if before else None
        if test(self.object):
            kind = WatchEventType.MODIFIED if before else WatchEventType.ADDED
        elif before:
            kind = WatchEventType.DELETED
        else:
            return None
        return self if kind is self.type else WatchEvent(kind, self.record, self.previous, self.revision)


class Watch:
    """A queue of changes, which :meth:`batch` takes."""

    def __init__(
        self, test: Test | None, backlog: Iterable[WatchEvent], on_close: Callable[[Watch], object], *, after: int = 0
    ) -> None:
        self._test = test
        self._after = after
        self._queue = list(backlog)
        self._on_close = on_close
        self._changed = asyncio.Event()
        self._closed = False
        self._lagged = 0

    @property
    def pending(self) -> bool:
        """Return whether changes are queued."""
        return bool(self._queue)

    async def batch(self) -> list[WatchEvent]:
        """Wait for at least one change and return all queued ones; empty once the watch is closed.

        Raises:
          StatusError: 410, the watch lagged too far behind.
        """
        while not self._queue:
            if self._lagged:
                raise gone(self._lagged - BACKLOG, self._lagged)
            if self._closed:
                break
            self._changed.clear()
            await self._changed.wait()
        changes, self._queue = self._queue, []
        return changes

    def offer(self, change: WatchEvent) -> None:
        """Queue a change that has just happened."""
        seen = change.seen_through(self._test)
        if seen is None or self._closed or change.revision <= self._after:
            return
        if len(self._queue) >= BACKLOG:
            # Free the queue at once; the reader gets a 410 when it runs next.
            self._lagged = change.revision
            self._queue = []
            self.close()
        else:
            self._queue.append(seen)
            self._changed.set()

    def close(self) -> None:
        """End the watch; queued changes can still be taken."""
        if not self._closed:
            self._closed = True
            self._on_close(self)
            self._changed.set()


class Table:
    """One type's objects, the watches over them, and the recent changes from which an interrupted watch can resume."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], ObjectState] = {}
        """By namespace and name."""
        self._history: deque[WatchEvent] = deque()
        self._oldest = 0
        self._watches: dict[Watch, str] = {}

    def select(self, namespace: str, test: Test | None) -> list[ObjectState]:
        """Return objects in order of namespace and name; of all namespaces when `namespace` is empty."""
        selected = [self.objects[key] for key in sorted(self.objects) if namespace in ("", key[0])]
        return selected if test is None else [record for record in selected if test(record.object)]

    def watch(self, namespace: str, since: int | None, test: Test | None) -> Watch:
        """Return a watch over this table.

        Raises:
          StatusError: 410, history does not reach back to `since`.
        """
        if since is None:
            backlog = [
                WatchEvent(WatchEventType.ADDED, record, None, int(record.object["metadata"]["resourceVersion"]))
                for record in self.select(namespace, test)
            ]
        else:
            self.check_history(since)
            newer = itertools.takewhile(lambda change: change.revision > since, reversed(self._history))
            here = [each for each in newer if namespace in ("", each.object["metadata"].get("namespace", ""))]
            seen = (change.seen_through(test) for change in reversed(here))
            backlog = [change for change in seen if change is not None]
        watch = Watch(test, backlog, lambda watch: self._watches.pop(watch, None), after=since or 0)
        self._watches[watch] = namespace
        return watch

    def check_history(self, since: int) -> None:
        """Check that all changes since a revision are remembered.

        Raises:
          StatusError: 410, they are not.
        """
        if since < self._oldest:
            raise gone(since, self._oldest)

    def publish(self, change: WatchEvent) -> None:
        """Keep a change for later watches and offer it to the current ones."""
        if len(self._history) >= HISTORY:
            self._oldest = self._history.popleft().revision
        self._history.append(change)
        home = change.object["metadata"].get("namespace", "")
        for watch, namespace in list(self._watches.items()):
            if namespace in ("", home):
                watch.offer(change)

    def close(self) -> None:
        """End every watch."""
        for watch in list(self._watches):
            watch.close()
