"""Watch responses: a stream of one JSON document per change, batched as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from aiohttp import web

from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.printing import as_table
from pathways_jupyter.local.apiserver.resources import ResourceType, encode
from pathways_jupyter.local.apiserver.route import ObjectRequest, flag, number, read_revision
from pathways_jupyter.local.apiserver.selectors import Test
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.watch_delivery import Watch, WatchEvent

_BOOKMARK_SECONDS = 30.0
_LONGEST_SECONDS = 3600.0
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


async def stream_changes(
    request: web.BaseRequest, store: Store, route: ObjectRequest, test: Test | None, table: bool
) -> web.StreamResponse:
    """Send changes until the client disconnects, its timeout is over, or the server stops.

    Raises:
      StatusError: 400, the query makes no sense.
    """
    query, resource, loop = request.query, route.resource, asyncio.get_running_loop()
    end = loop.time() + min(number(query, "timeoutSeconds") or _LONGEST_SECONDS, _LONGEST_SECONDS)
    # Initial events: the informers of Go clients, such as ``kubectl wait``.
    initial, bookmarks = flag(query, "sendInitialEvents"), flag(query, "allowWatchBookmarks")
    since = None if initial else read_revision(query.get("resourceVersion", ""))
    to_lines = _encoder(resource, table, query.get("includeObject", ""))

    def bookmark(**annotations: dict[str, str]) -> bytes:
        metadata = {"resourceVersion": str(store.revision), "creationTimestamp": None, **annotations}
        head = {"kind": resource.kind, "apiVersion": resource.api_version}
        return _line("BOOKMARK", encode({**head, "metadata": metadata}))

    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    watch: Watch | None = None
    try:
        watch = store.watch(resource, route.home, since, test)
        if initial and bookmarks:
            first = await watch.batch() if watch.pending else []
            await response.write(to_lines(first) + bookmark(annotations={_INITIAL_EVENTS_END: "true"}))
        while (left := end - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(left, _BOOKMARK_SECONDS) if bookmarks else left):
                    changes = await watch.batch()
            except TimeoutError:
                if bookmarks:
                    await response.write(bookmark())
                continue
            if not changes:
                # The server stops, or the type is gone.
                break
            await response.write(to_lines(changes))
    except StatusError as error:
        # As on a real API server, an expired resourceVersion is an ERROR event in a response with status 200.
        await response.write(_line("ERROR", encode(error.to_object())))
    finally:
        if watch is not None:
            watch.close()
    return response


def _encoder(resource: ResourceType, table: bool, include: str) -> Callable[[Sequence[WatchEvent]], bytes]:
    """Return the function that encodes changes for one watch; only its first row has the definitions of columns."""
    definitions = True

    def to_lines(changes: Sequence[WatchEvent]) -> bytes:
        nonlocal definitions
        lines = []
        for change in changes:
            if not table:
                encoded = change.record.encoded_as(resource)
            else:
                row = as_table(resource, [change.object], str(change.revision), include)
                encoded = encode(row if definitions else {**row, "columnDefinitions": None})
                definitions = False
            lines.append(_line(change.type, encoded))
        return b"".join(lines)

    return to_lines


def _line(kind: str, encoded: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), encoded)
