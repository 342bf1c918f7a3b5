"""Follows a set of objects through whatever happens to the connection.

A reader sees first what there is, then every change, each once. When the connection breaks, when the API server
restarts, or when it has forgotten where the reader was (410 Gone), what was missed is worked out by comparing lists,
because only a list says for certain that nothing more was missed. Until then the reader is told that it may be.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pathways_jupyter.errors import ApiError, ClusterError
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import Listing, Object, Resource, list_, selection
from pathways_jupyter.kube.problems import ConnectionLost

# The server ends a watch after this long, so that one which stays silent longer must be dead.
SERVER_SECONDS = 240
SILENCE_SECONDS = 300.0
LONGEST_LINE = 64 * 1024 * 1024

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0


class ChangeType(StrEnum):
    """What happened."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    SYNCED = "SYNCED"
    """Everything that there is has been told (again)."""
    LOST = "LOST"
    """The server cannot be heard; what was told may be outdated until the next ``SYNCED``."""


@dataclass(frozen=True)
class Change:
    """One change.

    Attributes:
      object: The object as it is now, or as it last was when it is gone; empty for ``SYNCED`` and ``LOST``.
      error: Why the server cannot be heard (``LOST`` only).
    """

    type: ChangeType
    object: Object = field(default_factory=dict)
    error: ClusterError | None = None


async def watch(
    client: Client,
    resource: Resource,
    *,
    namespace: str = "",
    name: str = "",
    labels: str = "",
) -> AsyncGenerator[Change, None]:
    """Yields what there is, then every change, until the caller stops asking.

    Args:
      namespace: All namespaces when empty.
      name: Only the object of this name.
      labels: A label selector.

    Raises:
      ApiError: Watching is forbidden, or there is no such kind.
      ClusterError: The server could not be reached in the first place.
    """
    fields = f"metadata.name={name}" if name else ""
    view = _View()
    lost = False
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            if not view.version:
                listing = await list_(client, resource, namespace=namespace, labels=labels, fields=fields)
                for change in view.compare(listing):
                    yield change
                lost = False
                yield Change(ChangeType.SYNCED)
            query = {
                **selection(labels, fields),
                "watch": "1",
                "resourceVersion": view.version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(SERVER_SECONDS),
            }
            async with client.stream(resource.path(namespace), query=query, patience=0) as chunks:
                async for event in _events(chunks):
                    pause = _FIRST_PAUSE_SECONDS
                    for change in view.take(event):
                        yield change
        except ApiError as error:
            if error.status == 410:
                view.version = ""
                continue
            if error.status < 500 and error.status != 429:
                raise
            problem: ClusterError | None = error
        except ClusterError as error:
            if not view.started:
                raise
            problem = error
        else:
            problem = None
        if problem is not None:
            view.version = ""
            if not lost:
                lost = True
                yield Change(ChangeType.LOST, error=problem)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


class _View:
    """What the reader has been told so far."""

    def __init__(self) -> None:
        self.version = ""
        self.started = False
        self._known: dict[tuple[str, str], Object] = {}

    def compare(self, listing: Listing) -> Iterator[Change]:
        """The changes that lead from what is known to `listing`."""
        self.version, self.started = listing.resource_version, True
        now = {_key(item): item for item in listing.items}
        for key in [key for key in self._known if key not in now]:
            yield Change(ChangeType.DELETED, self._known.pop(key))
        for key, item in now.items():
            yield from self._put(key, item)

    def take(self, event: Object) -> Iterator[Change]:
        """The changes of one event of a watch."""
        kind, item = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            raise ApiError(
                str(item.get("message") or "The watch failed."),
                status=int(item.get("code") or 500),
                reason=str(item.get("reason") or ""),
            )
        version = _metadata(item).get("resourceVersion")
        if kind == "DELETED":
            if self._known.pop(_key(item), None) is not None:
                yield Change(ChangeType.DELETED, item)
        elif kind in {"ADDED", "MODIFIED"}:
            yield from self._put(_key(item), item)
        # Only after the change was taken: a reader that stops in between has not seen it.
        self.version = str(version or self.version)

    def _put(self, key: tuple[str, str], item: Object) -> Iterator[Change]:
        before = self._known.get(key)
        if before is not None and _metadata(before).get("uid") != _metadata(item).get("uid"):
            yield Change(ChangeType.DELETED, before)
            before = None
        self._known[key] = item
        if before is None:
            yield Change(ChangeType.ADDED, item)
        elif _metadata(before).get("resourceVersion") != _metadata(item).get("resourceVersion"):
            yield Change(ChangeType.MODIFIED, item)


async def _events(chunks: AsyncGenerator[bytes, None]) -> AsyncIterator[Object]:
    partial = bytearray()
    while True:
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                chunk = await anext(chunks, b"")
        except TimeoutError as error:
            raise ConnectionLost("The API server has gone silent.", hint="Waiting for it to come back.") from error
        if not chunk:
            return
        partial += chunk
        if len(partial) > LONGEST_LINE:
            raise ConnectionLost("The API server sent an endless line.", hint="Check what answers at that address.")
        *lines, rest = partial.split(b"\n")
        partial = bytearray(rest)
        for line in lines:
            if line.strip():
                yield _decoded(bytes(line))


def _decoded(line: bytes) -> Object:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise ConnectionLost("The API server sent half a change.", hint="Waiting for it to come back.") from error
    return event if isinstance(event, dict) else {}


def _metadata(item: Object) -> dict[str, Any]:
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _key(item: Object) -> tuple[str, str]:
    metadata = _metadata(item)
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
