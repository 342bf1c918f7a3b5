"""Share one watch among all parts of a program that follow the same objects.

Each part declares what it follows: a kind, a namespace, labels. The widest of these is watched, and the others receive
those of its changes that match. A part that begins later, such as a controller that has just become the leader,
receives the known objects first. The API server lists and sends every object once for each watch, so that a second
watch of the same objects doubles what the program costs it. A server that stops answering is noticed within seconds,
because what is known is shown, or acted on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import Object, Resource
from pathways_jupyter.kube.watch import Change, ChangeType, KnownObjects, Pulse, key_of, only_identity, watch

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 15.0
"""Between attempts at a kind that is not installed, not allowed, or at a server that was never reached."""


@dataclass(frozen=True)
class Informer:
    """The objects of one kind, namespace and label selector; made by :meth:`Informers.of`.

    Attributes:
      namespace: Empty for all.
      labels: A label selector of equalities and names; empty for all objects.
      lean: Whether no more of an object than its identity is remembered, to save memory: its followers must be the
        first, because later ones could not receive the known objects.
      after: What its changes wait for; of its list, only the first page is asked for before. None for nothing.
    """

    resource: Resource
    namespace: str
    labels: str
    lean: bool
    after: asyncio.Event | None = field(compare=False, repr=False)
    _informers: Informers = field(compare=False, repr=False)

    async def follow(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` with the known objects, then with every change, until cancelled.

        An error of the cluster never ends this: it is a ``LOST`` change, also for a kind that does not exist or is
        forbidden, and a ``SYNCED`` one follows when all objects are known again.

        Raises:
          Exception: The listener's. It gets no more changes, because after a missed one it would know something false;
            other listeners do.
        """
        await self._informers.follow(self, listener)

    def covers(self, other: Informer) -> bool:
        """Return whether the objects of `other` are among these."""
        return (
            self.resource == other.resource
            and self.namespace in {"", other.namespace}
            and self.labels in {"", other.labels}
        )

    def matches(self, item: Object) -> bool:
        """Return whether `item`, of the same kind, is one of these."""
        metadata = item["metadata"]
        if self.namespace not in {"", metadata.get("namespace")}:
            return False
        labels = metadata.get("labels") or {}
        wanted = (each.partition("=") for each in self.labels.split(",") if each)
        return all(name in labels and (not equals or labels[name] == value) for name, equals, value in wanted)


class Informers:
    """The informers of one client. Declare all that run together before the first is followed."""

    def __init__(self, client: Client) -> None:
        self.client = client
        # As an ordered set.
        self._declared: dict[Informer, Informer] = {}
        self._watches: list[_SharedWatch] = []
        self._pulse = Pulse(client)
        # Runs while there are watches.
        self._asking: asyncio.Task[None] | None = None

    def of(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        lean: bool = False,
        after: asyncio.Event | None = None,
    ) -> Informer:
        """Declare that these objects are followed; see :class:`Informer` for the arguments."""
        made = Informer(resource, namespace, labels, lean, after, self)
        return self._declared.setdefault(made, made)

    async def follow(self, informer: Informer, listener: Callable[[Change], None]) -> None:
        """Follow as :meth:`Informer.follow` does."""
        shared = next((each for each in self._watches if each.serves(informer)), None)
        if shared is None:
            covering = [each for each in self._declared if each.covers(informer)]
            widest = min(covering, key=lambda each: (bool(each.labels), bool(each.namespace)))
            whole = [each for each in self._declared if widest.covers(each) and not each.lean]
            shared = _SharedWatch(self.client, widest, whole, self._pulse)
            self._watches.append(shared)
            self._asking = self._asking or asyncio.create_task(self._pulse.run())
        try:
            await shared.follow(informer, listener)
        finally:
            if not shared.is_followed and shared in self._watches:
                # First, so that a follower that comes meanwhile begins another one.
                self._watches.remove(shared)
                if self._asking is not None and not self._watches:
                    self._asking.cancel()
                    self._asking = None
                await shared.close()


class _SharedWatch:
    """One watch, from its first follower until :meth:`close`.

    Args:
      widest: What is watched.
      whole: The informers whose objects are remembered whole.
      pulse: What notices that the server has stopped answering.
    """

    def __init__(self, client: Client, widest: Informer, whole: Iterable[Informer], pulse: Pulse) -> None:
        self._client = client
        self._widest = widest
        self._whole = tuple(whole)
        self._pulse = pulse
        self._known = KnownObjects(self._remembered)
        # The last SYNCED or LOST.
        self._state: Change | None = None
        self._followers: list[_Follower] = []
        self._task = asyncio.create_task(self._run())

    @property
    def is_followed(self) -> bool:
        """Return whether it has followers."""
        return bool(self._followers)

    def serves(self, informer: Informer) -> bool:
        """Return whether another follower would receive all that it follows."""
        if self._task.done() or not self._widest.covers(informer):
            return False
        nothing_missed = self._state is None and not self._known.objects
        return nothing_missed or any(each.covers(informer) for each in self._whole)

    async def follow(self, informer: Informer, listener: Callable[[Change], None]) -> None:
        """Follow as :meth:`Informer.follow` does."""
        one = _Follower(informer, listener, sees_all=informer.covers(self._widest))
        self._followers.append(one)
        try:
            for item in self._known.objects.values():
                one.take(Change(ChangeType.ADDED, item))
            if self._state is not None:
                one.take(self._state)
            await one.failed
        finally:
            self._followers.remove(one)

    async def close(self) -> None:
        """End the watch."""
        await tasks.stop(self._task)

    async def _run(self) -> None:
        try:
            async for _ in (backoff := Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)):
                await self._watch(backoff)
        except Exception as error:
            # A fault of this program. Without this, the followers would wait for ever and take their objects for new.
            for each in self._followers:
                each.fail(error)

    async def _watch(self, backoff: Backoff) -> None:
        wide = self._widest
        changes = watch(
            self._client,
            wide.resource,
            namespace=wide.namespace,
            labels=wide.labels,
            known=self._known,
            pulse=self._pulse,
        )
        try:
            async with contextlib.aclosing(changes):
                async for change in changes:
                    if wide.after is not None:
                        await wide.after.wait()
                    # A list alone shows no success: watching may be forbidden.
                    if self._state is not None and self._state.error is None:
                        backoff.reset()
                    self._publish(change)
        except PathwaysError as error:
            # Not installed, not allowed, or never reached: all of these can change while this program runs.
            self._publish(Change(ChangeType.LOST, error=error))

    def _publish(self, change: Change) -> None:
        if change.type in {ChangeType.SYNCED, ChangeType.LOST}:
            before = self._state.error if self._state is not None else None
            if change.error is not None and str(before) == str(change.error):
                # Attempt after attempt with the same result.
                return
            self._state = change
        for each in self._followers:
            if not each.failed.done():
                try:
                    each.take(change)
                except Exception as error:
                    each.fail(error)

    def _remembered(self, item: Object) -> Object:
        return item if any(each.matches(item) for each in self._whole) else only_identity(item)


class _Follower:
    """One listener of a shared watch.

    Args:
      sees_all: Whether all objects that are watched are the informer's.

    Attributes:
      failed: Never a result; the error that ended it.
    """

    def __init__(self, informer: Informer, listener: Callable[[Change], None], *, sees_all: bool) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._informer = informer
        self._listener = listener
        # The objects that match: one that no longer does is gone for this listener.
        self._matching: set[tuple[str, str]] | None = None if sees_all else set()

    def fail(self, error: Exception) -> None:
        """End it; no-op if it has ended."""
        if not self.failed.done():
            self.failed.set_exception(error)

    def take(self, change: Change) -> None:
        """Call the listener if the change concerns it.

        Raises:
          Exception: The listener's.
        """
        if self._matching is None or change.type in {ChangeType.SYNCED, ChangeType.LOST}:
            self._listener(change)
            return
        key = key_of(change.object)
        was = key in self._matching
        if change.type is not ChangeType.DELETED and self._informer.matches(change.object):
            self._matching.add(key)
            self._listener(Change(ChangeType.MODIFIED if was else ChangeType.ADDED, change.object))
        elif was:
            self._matching.discard(key)
            self._listener(Change(ChangeType.DELETED, change.object))
