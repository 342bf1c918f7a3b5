"""Watch responses: a stream of one JSON document per change, batched as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from aiohttp import web

from pathways_jupyter.local.apiserver import bodies
from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.printing import as_table
from pathways_jupyter.local.apiserver.resources import Object, ResourceType
from pathways_jupyter.local.apiserver.route import Route, flag, number, read_revision
from pathways_jupyter.local.apiserver.selectors import Test
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.watch_delivery import Change, Watch

_BOOKMARK_SECONDS = 30.0
_LONGEST = 3600.0
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


async def stream_changes(
    request: web.BaseRequest, store: Store, route: Route, test: Test | None, table: bool
) -> web.StreamResponse:
    """Send changes until the client disconnects, its timeout is over, or the server stops.

    Raises:
      StatusError: 400 or 504, the resourceVersion cannot be watched from.
    """
    query, resource = request.query, route.resource
    seconds = min(number(query, "timeoutSeconds") or _LONGEST, _LONGEST)
    initial = flag(query, "sendInitialEvents")
    since = None if initial else read_revision(query.get("resourceVersion", ""))
    encode = _encoder(resource, table, query.get("includeObject", ""))
    expired: StatusError | None = None
    watch: Watch | None = None
    try:
        watch = store.watch(resource, route.namespace if resource.namespaced else "", since, test)
    except StatusError as error:
        if error.status != 410:
            raise
        expired = error
    # As on a real API server, an expired resourceVersion is an ERROR event in a response with status 200.
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    response.enable_chunked_encoding()
    try:
        await response.prepare(request)
        if watch is None or expired is not None:
            assert expired is not None
            await response.write(_line("ERROR", bodies.encode(expired.to_object())))
            return response
        bookmarks = flag(query, "allowWatchBookmarks")
        if initial and bookmarks:
            first = [] if not watch.pending else await watch.batch()
            mark = _bookmark(resource, store.revision, {_INITIAL_EVENTS_END: "true"})
            await response.write(encode(first) + _line("BOOKMARK", bodies.encode(mark)))
        await _pump(response, store, resource, watch, encode, seconds, bookmarks)
    finally:
        if watch is not None:
            watch.close()
    return response


async def _pump(
    response: web.StreamResponse,
    store: Store,
    resource: ResourceType,
    watch: Watch,
    encode: Callable[[Sequence[Change]], bytes],
    seconds: float,
    bookmarks: bool,
) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while (left := end - loop.time()) > 0:
        try:
            async with asyncio.timeout(min(left, _BOOKMARK_SECONDS) if bookmarks else left):
                changes = await watch.batch()
        except TimeoutError:
            if bookmarks:
                await response.write(_line("BOOKMARK", bodies.encode(_bookmark(resource, store.revision, {}))))
            continue
        except StatusError as error:
            await response.write(_line("ERROR", bodies.encode(error.to_object())))
            return
        if not changes:
            # The server stops, or the type is gone.
            return
        await response.write(encode(changes))


def _encoder(resource: ResourceType, as_rows: bool, include: str) -> Callable[[Sequence[Change]], bytes]:
    """Return the function that encodes changes for one watch."""
    started = False

    def shape(change: Change) -> bytes:
        nonlocal started
        obj = change.object
        if as_rows:
            table = as_table(resource, [obj], str(change.revision), include)
            if started:
                table["columnDefinitions"] = None
            started = True
            return bodies.encode(table)
        return change.record.encoded

    return lambda changes: b"".join(_line(change.type, shape(change)) for change in changes)


def _line(kind: str, encoded: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), encoded)


def _bookmark(resource: ResourceType, revision: int, annotations: dict[str, str]) -> Object:
    metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
