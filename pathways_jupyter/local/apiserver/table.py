"""All objects of one type, and the recent changes from which an interrupted watch can resume."""

from __future__ import annotations

from collections import deque

from pathways_jupyter.local.apiserver.api_errors import gone
from pathways_jupyter.local.apiserver.selectors import Test, all_of
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
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, namespace: str, name: str) -> Record | None:
        """One object, or None."""
        return self._namespaces.get(namespace, {}).get(name)

    def put(self, namespace: str, name: str, record: Record) -> Record | None:
        """Store an object's new state and return the previous one."""
        home = self._namespaces.setdefault(namespace, {})
        previous = home.get(name)
        home[name] = record
        self._size += previous is None
        return previous

    def take(self, namespace: str, name: str) -> Record | None:
        """Remove an object and return its last state."""
        home = self._namespaces.get(namespace, {})
        previous = home.pop(name, None)
        if not home:
            self._namespaces.pop(namespace, None)
        self._size -= previous is not None
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
            backlog = self._since(namespace, since, test)
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

    def _since(self, namespace: str, since: int, test: Test | None) -> list[Change]:
        backlog: list[Change] = []
        for change in reversed(self._history):
            if change.revision <= since:
                break
            if not namespace or change.object["metadata"].get("namespace", "") == namespace:
                backlog.append(change)
        seen = (change.seen_through(all_of(test)) for change in reversed(backlog))
        return [change for change in seen if change is not None]
