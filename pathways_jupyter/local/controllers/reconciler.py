"""Base of the controllers: changes select keys, and reconciling a key brings its object to the desired state.

The store is synchronous, so one reconcile sees one consistent state and needs no lock, no cache and no memory of its
earlier requests. It may ask to be called again later, for which the deadlines are here; nothing polls.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.local.apiserver.resources import Object, ResourceType
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.strategy import now
from pathways_jupyter.local.apiserver.watch_delivery import Watch, WatchEvent
from pathways_jupyter.local.settings import Failures, RetryDelay

_log = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace and name."""

Source = Callable[[WatchEvent], Iterable[Key]]

_RETRIES = RetryDelay(first_seconds=0.4, max_seconds=60.0)
_QUIET_FAILURES = 5


class Follower:
    """Follows changes of types, each in a task of its own, from :meth:`start` to :meth:`close`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watches: dict[tuple[str, str], Watch] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def follow(self, resource: ResourceType, handle: Callable[[Sequence[WatchEvent]], None]) -> None:
        """Call `handle` with batches of changes, beginning with all existing objects."""
        watch = self._watches[resource.key] = self._store.watch(resource)

        async def follow() -> None:
            while changes := await watch.batch():
                # What cannot be handled must not end the handling of all that comes after it.
                try:
                    handle(changes)
                except Exception:
                    _log.exception("%s failed with changes of %s.", type(self).__name__, resource.plural)
            self._watches.pop(resource.key, None)

        self._tasks.append(asyncio.create_task(follow()))

    async def close(self) -> None:
        """Stop following."""
        for watch in list(self._watches.values()):
            watch.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Reconciler(Follower, ABC):
    """Calls `reconcile` for every key that a change in its sources selects.

    Args:
      sources: For each type, maps a change of an object to the keys to reconcile.
    """

    def __init__(self, store: Store, sources: Mapping[ResourceType, Source]) -> None:
        super().__init__(store)
        self._sources = sources
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, Failures] = {}

    @abstractmethod
    def reconcile(self, key: Key) -> float | None:
        """Bring one object to its desired state; return the seconds after which to call again, or None."""

    def start(self) -> None:
        """Begin with all existing objects."""
        for resource, source in self._sources.items():

            def handle(changes: Sequence[WatchEvent], source: Source = source) -> None:
                # A batch usually holds many changes with the same key; one reconcile sees them all.
                for key in dict.fromkeys(key for change in changes for key in source(change)):
                    self._process(key)

            self.follow(resource, handle)

    async def close(self) -> None:
        """Stop reconciling."""
        # In this order: the last changes may set timers.
        await super().close()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _process(self, key: Key) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        try:
            again = self.reconcile(key)
        except Exception as error:
            failures = self._failures.setdefault(key, Failures(_RETRIES))
            again = failures.add()
            # The API refuses what conflicts with another change; it is rarely refused several times.
            if not isinstance(error, ApiError) or failures.count > _QUIET_FAILURES:
                _log.exception("%s failed with %s.", type(self).__name__, "/".join(key))
        else:
            self._failures.pop(key, None)
        if again is not None:
            self._timers[key] = asyncio.get_running_loop().call_later(max(again, 0.0), self._process, key)


def key_of(obj: Object) -> Key:
    """Return an object's namespace and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def itself(change: WatchEvent) -> Sequence[Key]:
    """Return the key of the changed object itself."""
    return (key_of(change.object),)


EVERYTHING: Sequence[Key] = (("", "everything"),)
"""The only key of a controller in which each decision depends on all objects."""


def everything(_change: WatchEvent) -> Sequence[Key]:
    """Return that key, whatever has changed."""
    return EVERYTHING


def controller_of(obj: Object) -> Object | None:
    """Return the ownerReference of the object that controls `obj`."""
    references: Sequence[Object] = obj["metadata"].get("ownerReferences") or ()
    return next((each for each in references if each.get("controller")), None)


def owned_by(kind: str) -> Source:
    """Return the key of the object of that kind which controls the changed one."""

    def source(change: WatchEvent) -> Sequence[Key]:
        owner = controller_of(change.object)
        if owner is None or owner["kind"] != kind:
            return ()
        return ((change.object["metadata"].get("namespace", ""), owner["name"]),)

    return source


def reference_to(owner: Object) -> Object:
    """Return an ownerReference by which `owner` controls an object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owned(store: Store, owner: Object, resource: ResourceType) -> list[Object]:
    """Return all objects of one type that `owner` controls; shared, so read them only."""
    uid = owner["metadata"]["uid"]
    return [
        obj
        for kind, obj in store.dependents(uid)
        if kind.key == resource.key and (controller_of(obj) or {}).get("uid") == uid
    ]


def condition(status: Object, kind: str) -> Object | None:
    """Return the condition of that type in a status if it is True, else None."""
    conditions: Sequence[Object] = status.get("conditions") or ()
    return next((each for each in conditions if (each["type"], each["status"]) == (kind, "True")), None)


def finished(status: Object) -> Object | None:
    """Return the condition by which a Job or a JobSet is over, else None."""
    return condition(status, "Complete") or condition(status, "Completed") or condition(status, "Failed")


def set_condition(status: Object, kind: str, holds: bool, *, reason: str = "", message: str) -> None:
    """Write a condition into a status; its transition time moves only when it changes."""
    conditions = status.setdefault("conditions", [])
    made = {
        "type": kind,
        "status": str(holds),
        "reason": reason or kind,
        "message": message,
        "lastTransitionTime": now(),
    }
    for index, each in enumerate(conditions):
        if each["type"] == kind:
            if each["status"] == made["status"]:
                made["lastTransitionTime"] = each.get("lastTransitionTime", made["lastTransitionTime"])
            conditions[index] = {**each, **made}
            return
    conditions.append(made)


def until(since: str, seconds: float) -> float:
    """Return the seconds left until `seconds` after the RFC 3339 time `since`; negative when that has passed."""
    return datetime.fromisoformat(since).timestamp() + seconds - datetime.now(UTC).timestamp()


def expire(store: Store, resource: ResourceType, finished: Object, over: Object) -> float | None:
    """Delete a `finished` object once its time to live is over; return the seconds until then, or None.

    Args:
      over: The condition whose transition time is when it finished.
    """
    seconds = finished["spec"].get("ttlSecondsAfterFinished")
    if seconds is None:
        return None
    if (left := until(over["lastTransitionTime"], seconds)) > 0:
        return left
    store.delete(resource, *key_of(finished), propagation="Background", uid=finished["metadata"]["uid"])
    return None
