"""All objects of one type, and the recent changes from which an interrupted watch can resume."""

from __future__ import annotations

import itertools
from collections import deque

from pathways_jupyter.local.apiserver.api_errors import gone
from pathways_jupyter.local.apiserver.selectors import Test
from pathways_jupyter.local.apiserver.watch_delivery import Change, ChangeType, Record, Watch

HISTORY = 20_000
"""Changes of one type that are kept for watches that resume."""


class Table:
    """One type's objects by namespace and name.

    Args:
      oldest: The revision before which nothing is remembered.
    """

    def __init__(self, *, oldest: int) -> None:
        self._namespaces: dict[str, dict[str, Record]] = {}
        self._history: deque[Change] = deque()
        self._oldest = oldest
        self._watches: dict[Watch, str] = {}

    def __len__(self) -> int:
        return sum(map(len, self._namespaces.values()))

    def get(self, namespace: str, name: str) -> Record | None:
        """One object, or None."""
        return self._namespaces.get(namespace, {}).get(name)

    def put(self, namespace: str, name: str, record: Record | None) -> Record | None:
        """Store an object's new state, or remove it when that is None; return the previous one."""
        home = self._namespaces.setdefault(namespace, {})
        previous = home.pop(name, None)
        if record is not None:
            home[name] = record
        elif not home:
            del self._namespaces[namespace]
        return previous

    def holds(self, namespace: str) -> bool:
        """Whether anything is in `namespace`."""
        return namespace in self._namespaces

    def select(self, namespace: str, test: Test | None) -> list[Record]:
        """Objects in order of namespace and name; of all namespaces when `namespace` is empty."""
        if namespace:
            homes = [self._namespaces.get(namespace, {})]
        else:
            homes = [self._namespaces[each] for each in sorted(self._namespaces)]
        found = [home[name] for home in homes for name in sorted(home)]
        return found if test is None else [record for record in found if test(record.object)]

    def watch(self, namespace: str, since: int | None, test: Test | None) -> Watch:
        """A watch over this table.

        Raises:
          StatusError: 410, history does not reach back to `since`.
        """
        if since is None:
            backlog = [
                Change(ChangeType.ADDED, record, None, int(record.object["metadata"]["resourceVersion"]))
                for record in self.select(namespace, test)
            ]
        else:
            self.reach(since)
            newer = itertools.takewhile(lambda change: change.revision > since, reversed(self._history))
            here = [each for each in newer if namespace in ("", each.object["metadata"].get("namespace", ""))]
            seen = (change.seen_through(test) for change in reversed(here))
            backlog = [change for change in seen if change is not None]
        watch = Watch(test, backlog, lambda watch: self._watches.pop(watch, None), after=since or 0)
        self._watches[watch] = namespace
        return watch

    def reach(self, since: int) -> None:
        """Check that all changes since a revision are remembered.

        Raises:
          StatusError: 410, they are not.
        """
        if since < self._oldest:
            raise gone(since, self._oldest)

    def publish(self, change: Change) -> None:
        """Keep a change for later watches and offer it to the current ones."""
        if len(self._history) >= HISTORY:
            self._oldest = self._history.popleft().revision
        self._history.append(change)
        home = change.object["metadata"].get("namespace", "")
        for watch, namespace in list(self._watches.items()):
            if not namespace or namespace == home:
                watch.offer(change)

    def compact(self, revision: int) -> None:
        """Forget the changes until `revision`."""
        self._history.clear()
        self._oldest = revision

    def close(self) -> None:
        """End every watch."""
        for watch in list(self._watches):
            watch.close()
