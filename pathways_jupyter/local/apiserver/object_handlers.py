"""HTTP handlers of the verbs on objects: read the request, call the store, form the answer.

The answer to a watch is a stream of one JSON document per change, batched as they come.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from pathways_jupyter.local.apiserver import api_errors, bodies
from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.jobset_webhook import check_jobset, default_jobset
from pathways_jupyter.local.apiserver.object_schema import check_object
from pathways_jupyter.local.apiserver.patch import PatchKind, clone, merge_patch, strategic_patch
from pathways_jupyter.local.apiserver.printing import as_table
from pathways_jupyter.local.apiserver.resources import (
    JOBSETS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Object,
    ResourceType,
    encode,
)
from pathways_jupyter.local.apiserver.route import (
    ObjectRequest,
    flag,
    is_dry_run,
    number,
    read_deletion,
    read_revision,
    selection,
)
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.watch_delivery import ObjectState, Watch, WatchEvent

_DELETION_GIVES_OBJECT = {each.key for each in (PODS, SERVICES, SERVICE_ACCOUNTS, PERSISTENT_VOLUME_CLAIMS)}
"""Kinds for which the Python client's delete calls return the object; for others they return a Status."""
_BOOKMARK_SECONDS = 30.0
_LONGEST_SECONDS = 3600.0
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


async def serve_objects(request: web.BaseRequest, store: Store, route: ObjectRequest) -> web.StreamResponse:
    """Answer one request for a plain verb on any type.

    Raises:
      StatusError: It cannot be done.
    """
    table = bodies.wants_table(request.headers.get("Accept", ""))
    if route.verb == "list":
        return _list(request, store, route, table)
    if route.verb == "watch":
        return await _watch(request, store, route, table)
    if route.verb in ("delete", "deletecollection"):
        return await _delete(request, store, route)
    # What is left concerns one object, and answers with it.
    code, warnings = 200, list[str]()
    if route.verb == "get":
        record = store.record(route.resource, route.home, route.name)
    else:
        obj, code, warnings = await _write(request, store, route)
        record = ObjectState(obj)
    body: bytes | Object = record.encoded_as(route.resource)
    if table:
        revision, include = record.object["metadata"].get("resourceVersion", ""), request.query.get("includeObject", "")
        body = as_table(route.resource, [record.object], revision, include)
    response = bodies.answer(body, status=code)
    for warning in warnings:
        response.headers.add("Warning", f"299 - {json.dumps(warning)}")
    return response


def _list(request: web.BaseRequest, store: Store, route: ObjectRequest, table: bool) -> web.Response:
    query, resource = request.query, route.resource
    # Only to refuse what is none: a list is of the newest state.
    read_revision(query.get("resourceVersion", ""))
    records = store.records(resource, route.home, selection(request, resource))
    metadata: dict[str, Any] = {"resourceVersion": str(store.revision)}
    records = _page(records, number(query, "limit"), query.get("continue", ""), metadata)
    if query.get("continue"):
        # The next pages are only worth having if a watch can make up for the changes in between (client: watches).
        store.check_history(resource, int(metadata["resourceVersion"]))
    if table:
        objects = [record.object for record in records]
        shown = as_table(resource, objects, metadata["resourceVersion"], query.get("includeObject", ""))
        return bodies.answer({**shown, "metadata": metadata})
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    items = [
        record.encoded_as(resource) if resource.custom else encode(_without_kind(record.object)) for record in records
    ]
    return bodies.answer(encode(head)[:-1] + b',"items":[' + b",".join(items) + b"]}")


async def _watch(request: web.BaseRequest, store: Store, route: ObjectRequest, table: bool) -> web.StreamResponse:
    """Send changes until the client disconnects, its timeout is over, or the server stops.

    Raises:
      StatusError: 400, the query makes no sense.
    """
    query, resource, loop = request.query, route.resource, asyncio.get_running_loop()
    test = selection(request, resource)
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
                # Changes that have just come are still to be sent: a bookmark would be of a revision after them.
                if bookmarks and not watch.pending:
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


async def _write(request: web.BaseRequest, store: Store, route: ObjectRequest) -> tuple[Object, int, list[str]]:
    """Create, update or patch an object; return it with the status code and warnings for the client."""
    resource, kind = route.resource, None
    if route.verb == "patch":
        kind, sent = await bodies.read_patch(request)
        if kind is PatchKind.STRATEGIC and resource.custom:
            raise api_errors.unsupported_media(kind, [PatchKind.MERGE, PatchKind.APPLY])
    else:
        sent = await bodies.read_object(request)
    old = store.find(resource, route.home, route.name) if route.name else None
    old = resource.of(old) if old is not None else None
    may_create = route.verb == "create"
    if kind is not None:
        may_create = kind is PatchKind.APPLY and not route.subresource
        if old is None and not may_create:
            raise api_errors.not_found(resource, route.name)
        merge = merge_patch if resource.custom or kind is PatchKind.MERGE else strategic_patch
        # A copy: what a patch leaves as it is would otherwise be shared by the object that is checked and completed.
        sent = merge(clone(old or {}), sent)
    is_jobset = resource.key == JOBSETS.key and not route.subresource
    if is_jobset and old is None:
        default_jobset(sent)
    obj, warnings = _checked(request, route, sent)
    if kind is PatchKind.APPLY:
        warnings.append("the embedded cluster merges what is applied: fields have no owners, and none is removed")
    if is_jobset:
        check_jobset(resource, obj, old)
    dry_run = is_dry_run(request)
    revision = obj["metadata"].get("resourceVersion")
    if route.verb == "create" and revision:
        # kubectl: an exported object. A real API server gives this code and no reason, too.
        raise StatusError(500, "resourceVersion should not be set on objects to be created", reason="")
    if old is None and may_create:
        return store.create(resource, obj, namespace=route.namespace, dry_run=dry_run), 201, warnings
    return store.update(resource, obj, subresource=route.subresource, dry_run=dry_run), 200, warnings


async def _delete(request: web.BaseRequest, store: Store, route: ObjectRequest) -> web.Response:
    resource, options = route.resource, await read_deletion(request)
    if route.verb == "deletecollection":
        deleted = []
        for record in store.records(resource, route.home, selection(request, resource)):
            metadata = record.object["metadata"]
            deleted.append(store.delete(resource, metadata.get("namespace", ""), metadata["name"], **options))
        return bodies.answer(
            {
                "kind": f"{resource.kind}List",
                "apiVersion": resource.api_version,
                "metadata": {"resourceVersion": str(store.revision)},
                "items": [resource.of(each) if resource.custom else _without_kind(each) for each in deleted],
            }
        )
    obj = store.delete(resource, route.home, route.name, **options)
    if resource.key in _DELETION_GIVES_OBJECT or store.find(resource, route.home, route.name) is not None:
        return bodies.answer(resource.of(obj))
    details = {"name": route.name, "kind": resource.plural, "uid": obj["metadata"]["uid"]}
    if resource.group:
        details["group"] = resource.group
    return bodies.answer(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    )


def _checked(request: web.BaseRequest, route: ObjectRequest, obj: Object) -> tuple[Object, list[str]]:
    """Validate `obj`, which a client sent: its shape, and that its name and namespace fit the path."""
    resource = route.resource
    if resource.custom and not obj.get("kind"):
        raise api_errors.bad_request("Object 'Kind' is missing in the body of the request")
    for field, expected in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        if obj.setdefault(field, expected) != expected:
            raise api_errors.bad_request(
                f"the {field} in the data ({obj[field]}) does not match the expected {field} ({expected})"
            )
    value, warnings = check_object(resource, obj, request.query.get("fieldValidation", "Warn"))
    metadata = value.setdefault("metadata", {})
    if resource.namespaced and metadata.setdefault("namespace", route.namespace) != route.namespace:
        raise api_errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if route.name and metadata.setdefault("name", route.name) != route.name:
        raise api_errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({route.name})"
        )
    return value, warnings


def _without_kind(obj: Object) -> Object:
    """Return `obj` without its kind and version, which a list of a built-in type states once for all."""
    return {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}


def _page(
    records: Sequence[ObjectState], limit: int | None, token: str, metadata: dict[str, Any]
) -> Sequence[ObjectState]:
    """Return one page of a list; each has the revision of the first, so that a watch from there misses nothing."""

    def place(record: ObjectState) -> tuple[str, str]:
        return record.object["metadata"].get("namespace", ""), record.object["metadata"]["name"]

    if token:
        try:
            after = json.loads(base64.urlsafe_b64decode(token))
            metadata["resourceVersion"], start = str(int(after["rv"])), (str(after["start"][0]), str(after["start"][1]))
        except (ValueError, KeyError, TypeError, IndexError, binascii.Error) as error:
            raise api_errors.bad_request("continue key is not valid") from error
        records = [record for record in records if place(record) > start]
    if not limit or len(records) <= limit:
        return records
    token = json.dumps({"rv": int(metadata["resourceVersion"]), "start": place(records[limit - 1])})
    metadata["continue"] = base64.urlsafe_b64encode(token.encode()).decode()
    metadata["remainingItemCount"] = len(records) - limit
    return records[:limit]
