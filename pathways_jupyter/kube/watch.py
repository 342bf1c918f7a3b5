"""Follow a set of objects, across dropped connections and restarts of the API server.

A reader receives the existing objects first, then every change exactly once. After a broken connection, or when the API
server no longer has the reader's resource version (410 Gone), the objects are listed again and compared with those that
the reader knows, because only a list shows for certain that nothing else was missed. Until then the reader's objects
may be outdated, which a ``LOST`` change reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pathways_jupyter.base.errors import ApiError, ClusterError, ConnectionLost, PathwaysError
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import answers
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.clock import boot_seconds
from pathways_jupyter.kube.objects import Object, Page, Resource, pages, selection

SERVER_SECONDS = 240
"""The server is asked to end a watch within this time; then it is resumed at the last resource version."""
SILENCE_SECONDS = 300.0
"""A watch without data for this long is dead, because the server should have ended it before."""
LONGEST_LINE = 64 * 1024 * 1024
"""Most bytes of one event."""
QUIET_SECONDS = 4.0
"""After so long without a byte from the server it is asked."""
ANSWER_SECONDS = 5.0
"""Longest wait for its answer: with the silence before, a dead server is noticed within 10 s."""
_LATE_SECONDS = 1.0
"""A timeout that fires so late shows that this process stood still itself."""
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0


class ChangeType(StrEnum):
    """Kinds of changes."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    SYNCED = "SYNCED"
    """The reader knows all objects (again)."""
    LOST = "LOST"
    """The connection to the server was lost; earlier changes may be outdated until the next ``SYNCED``."""


@dataclass(frozen=True)
class Change:
    """One change.

    Attributes:
      object: The object now; its last state when it was deleted, or only its identity if the reader asked for no more;
        empty for ``SYNCED`` and ``LOST``.
      error: Why the connection was lost (``LOST`` only).
    """

    type: ChangeType
    object: Object = field(default_factory=dict)
    error: PathwaysError | None = None


async def watch(
    client: Client,
    resource: Resource,
    *,
    namespace: str = "",
    name: str = "",
    labels: str = "",
    fields: str = "",
    known: KnownObjects | None = None,
    pulse: Pulse | None = None,
) -> AsyncGenerator[Change, None]:
    """Yield the existing objects, then every change, until the caller closes the generator.

    Args:
      namespace: All namespaces when empty.
      name: Only the object with this name.
      labels: A label selector.
      fields: A field selector, instead of `name`.
      known: What an earlier watch of the same objects has left: only what differs is yielded. By default nothing is
        known, and objects are remembered whole.
      pulse: What notices within seconds that the server has stopped answering, and not after :data:`SILENCE_SECONDS`.

    Raises:
      ApiError: Watching is forbidden, or the kind does not exist.
      ClusterError: The server could not be reached at the start; later such errors are reported as ``LOST``.
    """
    fields = f"metadata.name={name}" if name else fields
    known = known or KnownObjects()
    # What has happened since an earlier watch, only a list shows.
    known.version = ""
    # Whether LOST was reported and SYNCED not yet: an outage is reported once, not at every attempt.
    lost = False
    backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
    while True:
        try:
            # Without a version: at the start, after a 410, and after any error. After an error, only a list
            # shows for certain what was missed.
            if not known.version:
                listing = pages(client, resource, namespace=namespace, labels=labels, fields=fields)
                async with contextlib.aclosing(listing):
                    async for page in listing:
                        for change in known.compare(page):
                            yield change
                lost = False
                yield Change(ChangeType.SYNCED)
            query = {
                **selection(labels, fields),
                "watch": "1",
                "resourceVersion": known.version,
                "allowWatchBookmarks": "true",
                # Watches that began together, after a restart of the server, must not all end together.
                "timeoutSeconds": str(random.randint(SERVER_SECONDS // 2, SERVER_SECONDS)),
            }
            # No retries inside the client: they would delay LOST.
            stream = client.stream(resource.path(namespace), query=query, patience=0)
            async with contextlib.AsyncExitStack() as opened:
                async with _unless_silent(pulse):
                    chunks = await opened.enter_async_context(stream)
                async for event in _events(chunks, pulse):
                    backoff.reset()
                    for change in known.take(event):
                        yield change
        except ApiError as error:
            if error.status == 410:
                # The server has discarded the changes since our version. Nothing is wrong, so list again at once.
                known.version = ""
                continue
            if is_refusal(error):
                raise
            problem: ClusterError | None = error
            backoff.delay(error.retry_after)
        except ClusterError as error:
            # A server that was never reached may have a wrong address: let the caller decide.
            if not known.started:
                raise
            problem = error
        else:
            # The server ended the watch as asked; resume at the last version.
            problem = None
        if problem is not None:
            known.version = ""
            if not lost:
                lost = True
                yield Change(ChangeType.LOST, error=problem)
        await backoff.wait()


def is_refusal(error: PathwaysError | None) -> bool:
    """Return whether `error` is the server's word that it will not serve this: forbidden, or no such kind."""
    # Not the word of an overloaded server.
    return isinstance(error, ApiError) and error.status < 500 and error.status != 429


async def until_gone(client: Client, resource: Resource, *, namespace: str, labels: str) -> None:
    """Wait until no object with these labels is left; the caller bounds the wait."""
    left: set[str] = set()
    changes = watch(client, resource, namespace=namespace, labels=labels)
    async with contextlib.aclosing(changes):
        async for change in changes:
            # By uid: an object that was made anew under the same name is another one.
            if change.type in {ChangeType.ADDED, ChangeType.MODIFIED}:
                left.add(change.object["metadata"]["uid"])
            elif change.type is ChangeType.DELETED:
                left.discard(change.object["metadata"]["uid"])
            if not left and change.type in {ChangeType.SYNCED, ChangeType.DELETED}:
                return


def only_identity(item: Object) -> Object:
    """Return an object with no more than what identifies it and its version."""
    identity = ("namespace", "name", "uid", "resourceVersion")
    return {"metadata": {name: value for name, value in _metadata(item).items() if name in identity}}


class KnownObjects:
    """The objects as the reader knows them: the sum of the changes yielded so far.

    Args:
      remembered: Returns what to remember of an object, at least :func:`only_identity`, to save memory; a deleted one
        may have no more either. All of it by default.

    Attributes:
      objects: What is remembered, by namespace and name.
      version: Resource version to watch from; empty when a list is needed.
      started: Whether there was a list.
    """

    def __init__(self, remembered: Callable[[Object], Object] = lambda item: item) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.version = ""
        self.started = False
        self._remembered = remembered
        # What the pages of the list in progress have named.
        self._listed: set[tuple[str, str]] = set()

    def compare(self, page: Page) -> Iterator[Change]:
        """Yield the changes from the known objects to those of the next page of a list."""
        if page.is_first:
            self._listed.clear()
        for item in page.items:
            key = key_of(item)
            self._listed.add(key)
            yield from self._put(key, item)
        if not page.rest:
            for key in [key for key in self.objects if key not in self._listed]:
                yield Change(ChangeType.DELETED, self.objects.pop(key))
            self._listed.clear()
            # Set last, after the reader has received the changes.
            self.version, self.started = page.resource_version, True

    def take(self, event: Object) -> Iterator[Change]:
        """Yield the changes of one watch event.

        Raises:
          ApiError: It is an error event, e.g. 410 Gone.
        """
        kind, item = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            raise ApiError(
                str(item.get("message") or "The watch failed."),
                status=int(item.get("code") or 500),
                reason=str(item.get("reason") or ""),
            )
        version = _metadata(item).get("resourceVersion")
        if kind == "DELETED":
            if self.objects.pop(key_of(item), None) is not None:
                yield Change(ChangeType.DELETED, item)
        elif kind in {"ADDED", "MODIFIED"}:
            yield from self._put(key_of(item), item)
        # Set last, for the same reason. Bookmarks carry a version and no change.
        self.version = str(version or self.version)

    def _put(self, key: tuple[str, str], item: Object) -> Iterator[Change]:
        before = self.objects.get(key)
        # Another uid: it was deleted and created again while we did not watch.
        if before is not None and _metadata(before).get("uid") != _metadata(item).get("uid"):
            yield Change(ChangeType.DELETED, before)
            before = None
        self.objects[key] = self._remembered(item)
        if before is None:
            yield Change(ChangeType.ADDED, item)
        elif _metadata(before).get("resourceVersion") != _metadata(item).get("resourceVersion"):
            yield Change(ChangeType.MODIFIED, item)


class Pulse:
    """Ends the watches of one client as soon as their server has stopped answering, although connections are open.

    A watch of a quiet namespace receives nothing for minutes, so its silence shows nothing: a server that was stopped,
    or a network that swallows packets, looks the same. TCP cannot show it either, because the kernel of a stopped
    process goes on to acknowledge. So after some silence the server is asked something small: one question for all
    watches of the client, and none while anything arrives for any of its requests.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waits: set[asyncio.Timeout] = set()

    @contextlib.contextmanager
    def ends(self, wait: asyncio.Timeout) -> Iterator[None]:
        """Let `wait` time out at once when the server has stopped answering, inside the block."""
        self._waits.add(wait)
        try:
            yield
        finally:
            self._waits.discard(wait)

    async def run(self) -> None:
        """Ask the server after each silence, until cancelled."""
        while True:
            silent = boot_seconds() - self._client.last_received
            if silent < QUIET_SECONDS or not self._waits:
                await asyncio.sleep(max(QUIET_SECONDS - silent, QUIET_SECONDS / 8))
            elif not await self._answers():
                for wait in self._waits:
                    if not wait.expired():
                        wait.reschedule(asyncio.get_running_loop().time())
                self._waits.clear()

    async def _answers(self) -> bool:
        try:
            # Outside of the timeout: a slow credential plugin must not look like an API server that does not answer.
            await self._client.cluster.credentials.authorization()
        except ClusterError:
            # Nothing can be asked; the next request of another kind reports why.
            await asyncio.sleep(QUIET_SECONDS)
            return True
        began = boot_seconds()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._client.get("/version")
        except ApiError:
            # A refusal is an answer.
            return True
        except TimeoutError:
            return boot_seconds() - began > ANSWER_SECONDS + _LATE_SECONDS
        except ClusterError:
            return False
        return True


@contextlib.asynccontextmanager
async def _unless_silent(pulse: Pulse | None) -> AsyncIterator[None]:
    """Wait inside the block for the server, until it has been silent for too long or `pulse` says so."""
    try:
        async with asyncio.timeout(SILENCE_SECONDS) as silence:
            with pulse.ends(silence) if pulse else contextlib.nullcontext():
                yield
    except TimeoutError as error:
        raise ConnectionLost("The API server has stopped answering.", hint="Waiting for it to answer again.") from error


async def _events(chunks: AsyncGenerator[bytes, None], pulse: Pulse | None) -> AsyncIterator[Object]:
    partial = bytearray()
    while True:
        async with _unless_silent(pulse):
            chunk = await anext(chunks, b"")
        if not chunk:
            return
        partial += chunk
        # Whatever answers at this address: one that ends no line must not fill the memory.
        if len(partial) > LONGEST_LINE:
            raise ConnectionLost(
                f"The API server sent a line longer than {LONGEST_LINE // 1024**2} MiB.",
                hint="Check which server answers at its address.",
            )
        *lines, rest = partial.split(b"\n")
        partial = bytearray(rest)
        for line in lines:
            if line.strip():
                try:
                    event = answers.loads(bytes(line))
                except ValueError as error:
                    raise ConnectionLost(
                        "The API server sent an incomplete event.", hint="Waiting for it to answer again."
                    ) from error
                yield event if isinstance(event, dict) else {}


def _metadata(item: Object) -> dict[str, Any]:
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def key_of(item: Object) -> tuple[str, str]:
    """Return the namespace and the name of an object."""
    metadata = _metadata(item)
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
