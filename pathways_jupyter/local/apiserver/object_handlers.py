"""HTTP handlers of the verbs on objects: read the request, call the store, form the answer."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from pathways_jupyter.local.apiserver import api_errors, bodies
from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.apply import apply_configuration
from pathways_jupyter.local.apiserver.object_schema import Checked, check_object
from pathways_jupyter.local.apiserver.patch import PatchKind, apply_patch, clone
from pathways_jupyter.local.apiserver.printing import as_table
from pathways_jupyter.local.apiserver.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ENDPOINTS,
    EVENTS,
    LEASES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Object,
    ResourceType,
)
from pathways_jupyter.local.apiserver.route import (
    Route,
    flag,
    is_dry_run,
    number,
    read_deletion,
    read_revision,
    selection,
)
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.watch_delivery import Record, without_kind
from pathways_jupyter.local.apiserver.watch_responses import stream_changes

_CREATED_BY_UPDATE = {
    each.key
    for each in (LEASES, ENDPOINTS, EVENTS, SERVICES, ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
}
_DELETION_GIVES_OBJECT = {each.key for each in (PODS, SERVICES, SERVICE_ACCOUNTS, PERSISTENT_VOLUME_CLAIMS)}


class Objects:
    """Serves the plain verbs on every type."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def serve(self, request: web.BaseRequest, route: Route) -> web.StreamResponse:
        """Answer one request.

        Raises:
          StatusError: It cannot be done.
        """
        table = bodies.wants_table(request.headers.get("Accept", ""))
        if route.verb == "get":
            record = self._store.record(route.resource, self._namespace(route), route.name)
            return self._one(route.resource, record, table, request)
        if route.verb == "list":
            return self._list(request, route, table)
        if route.verb == "watch":
            test = selection(request, route.resource)
            return await stream_changes(request, self._store, route, test, table)
        if route.verb == "create":
            return await self._create(request, route, table)
        if route.verb == "update":
            return await self._update(request, route, table)
        if route.verb == "patch":
            return await self._patch(request, route, table)
        if route.verb == "delete":
            return await self._delete(request, route)
        return await self._delete_many(request, route)

    def _namespace(self, route: Route) -> str:
        return route.namespace if route.resource.namespaced else ""

    def _one(
        self, resource: ResourceType, record: Record, table: bool, request: web.BaseRequest, code: int = 200
    ) -> web.Response:
        obj = versioned(resource, record.object)
        if table:
            revision, include = obj["metadata"]["resourceVersion"], request.query.get("includeObject", "")
            return bodies.answer(as_table(resource, [obj], revision, include), status=code)
        return bodies.answer(record.encoded if obj is record.object else obj, status=code)

    def _list(self, request: web.BaseRequest, route: Route, table: bool) -> web.Response:
        query, resource = request.query, route.resource
        wanted = read_revision(query.get("resourceVersion", ""))
        if wanted is not None and wanted > self._store.revision:
            raise api_errors.too_large(wanted, self._store.revision)
        records = self._store.records(resource, self._namespace(route), selection(request, resource))
        metadata: dict[str, Any] = {"resourceVersion": str(self._store.revision)}
        records = _page(records, number(query, "limit"), query.get("continue", ""), metadata)
        if query.get("continue"):
            # The next pages are only worth having if a watch can make up for the changes in between.
            self._store.reach(resource, int(metadata["resourceVersion"]))
        objects = [versioned(resource, record.object) for record in records]
        if table:
            shown = as_table(resource, objects, metadata["resourceVersion"], query.get("includeObject", ""))
            return bodies.answer({**shown, "metadata": metadata})
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
        if not resource.custom:
            encoded = [record.bare for record in records]
        elif all(each is record.object for each, record in zip(objects, records, strict=True)):
            encoded = [record.encoded for record in records]
        else:
            encoded = [bodies.encode(each) for each in objects]
        return bodies.answer(bodies.encode(head)[:-1] + b',"items":[' + b",".join(encoded) + b"]}")

    async def _create(self, request: web.BaseRequest, route: Route, table: bool) -> web.Response:
        checked = self._checked(request, route, await bodies.read_object(request))
        if checked.object["metadata"].get("resourceVersion"):
            # A real API server gives this code and no reason, too.
            raise StatusError("resourceVersion should not be set on objects to be created", status=500, reason="")
        dry_run, manager = is_dry_run(request), _manager(request)
        obj = self._store.create(
            route.resource, checked.object, namespace=route.namespace, dry_run=dry_run, manager=manager
        )
        return _warned(self._one(route.resource, Record(obj), table, request, 201), checked)

    async def _update(self, request: web.BaseRequest, route: Route, table: bool) -> web.Response:
        checked = self._checked(request, route, await bodies.read_object(request))
        obj, dry_run, code = checked.object, is_dry_run(request), 200
        old = self._store.find(route.resource, self._namespace(route), route.name)
        if old is not None and route.resource.versioned_updates and not obj["metadata"].get("resourceVersion"):
            why = "Invalid value: 0: must be specified for an update"
            raise api_errors.invalid(route.resource, route.name, [("metadata.resourceVersion", why)])
        common: dict[str, Any] = {"dry_run": dry_run, "manager": _manager(request)}
        if old is None and route.resource.key in _CREATED_BY_UPDATE and not route.subresource:
            obj, code = self._store.create(route.resource, obj, namespace=route.namespace, **common), 201
        else:
            obj = self._store.update(route.resource, obj, subresource=route.subresource, **common)
        return _warned(self._one(route.resource, Record(obj), table, request, code), checked)

    async def _patch(self, request: web.BaseRequest, route: Route, table: bool) -> web.Response:
        kind, patch = await bodies.read_patch(request)
        resource, namespace, dry_run, code = route.resource, self._namespace(route), is_dry_run(request), 200
        if kind is PatchKind.STRATEGIC and resource.custom:
            raise api_errors.unsupported_media(kind, [PatchKind.JSON, PatchKind.MERGE, PatchKind.APPLY])
        # A copy: what a patch leaves as it is would otherwise be shared by the object that is checked and completed.
        old = clone(self._store.find(resource, namespace, route.name))
        if kind is PatchKind.APPLY:
            manager = request.query.get("fieldManager", "")
            if not isinstance(patch, dict) or not manager:
                raise api_errors.bad_request("an apply patch must be an object and name its fieldManager")
            given = self._checked(request, route, patch)
            new = apply_configuration(
                resource, old, given.object, manager, force=flag(request.query, "force"), subresource=route.subresource
            )
        else:
            if old is None:
                raise api_errors.not_found(resource, route.name)
            new = apply_patch(old, patch, kind)
            if not isinstance(new, dict):
                raise api_errors.bad_request("the patched object is not an object")
        checked = self._checked(request, route, new)
        # An apply has written its managed fields.
        manager = "" if kind is PatchKind.APPLY else _manager(request)
        common: dict[str, Any] = {"dry_run": dry_run, "manager": manager}
        if old is None:
            obj, code = self._store.create(resource, checked.object, namespace=route.namespace, **common), 201
        else:
            obj = self._store.update(resource, checked.object, subresource=route.subresource, **common)
        return _warned(self._one(resource, Record(obj), table, request, code), checked)

    async def _delete(self, request: web.BaseRequest, route: Route) -> web.Response:
        resource, namespace = route.resource, self._namespace(route)
        wish = await read_deletion(request)
        obj = self._store.delete(
            resource,
            namespace,
            route.name,
            grace=wish.grace,
            propagation=wish.propagation,
            uid=wish.uid,
            revision=wish.revision,
            dry_run=wish.dry_run,
        )
        remains = self._store.find(resource, namespace, route.name) is not None
        if remains or resource.key in _DELETION_GIVES_OBJECT:
            return bodies.answer(versioned(resource, obj))
        details = {"name": route.name, "kind": resource.plural, "uid": obj["metadata"]["uid"]}
        if resource.group:
            details["group"] = resource.group
        return bodies.answer(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        )

    async def _delete_many(self, request: web.BaseRequest, route: Route) -> web.Response:
        resource, wish = route.resource, await read_deletion(request)
        deleted = []
        for record in self._store.records(resource, self._namespace(route), selection(request, resource)):
            metadata = record.object["metadata"]
            deleted.append(
                self._store.delete(
                    resource,
                    metadata.get("namespace", ""),
                    metadata["name"],
                    grace=wish.grace,
                    propagation=wish.propagation,
                    dry_run=wish.dry_run,
                )
            )
        return bodies.answer(
            {
                "kind": f"{resource.kind}List",
                "apiVersion": resource.api_version,
                "metadata": {"resourceVersion": str(self._store.revision)},
                "items": [versioned(resource, each) if resource.custom else without_kind(each) for each in deleted],
            }
        )

    def _checked(self, request: web.BaseRequest, route: Route, obj: Object) -> Checked:
        """Validate `obj`, which a client sent: its shape, and that its name and namespace fit the path."""
        resource = route.resource
        if resource.custom and not obj.get("kind"):
            raise api_errors.bad_request("Object 'Kind' is missing in the body of the request")
        for field, wanted in (("kind", resource.kind), ("apiVersion", resource.api_version)):
            if obj.setdefault(field, wanted) != wanted:
                raise api_errors.bad_request(
                    f"the {field} in the data ({obj[field]}) does not match the expected {field} ({wanted})"
                )
        checked = check_object(resource, obj, request.query.get("fieldValidation", "Warn"))
        metadata = checked.object.setdefault("metadata", {})
        if resource.namespaced and metadata.setdefault("namespace", route.namespace) != route.namespace:
            raise api_errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if route.name and metadata.setdefault("name", route.name) != route.name:
            raise api_errors.bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({route.name})"
            )
        return checked


def versioned(resource: ResourceType, obj: Object) -> Object:
    """`obj` as served in this version of its type."""
    return obj if obj["apiVersion"] == resource.api_version else {**obj, "apiVersion": resource.api_version}


def _manager(request: web.BaseRequest) -> str:
    """Who writes: what the request says, or the program that sends it."""
    return request.query.get("fieldManager", "") or request.headers.get("User-Agent", "").partition("/")[0] or "unknown"


def _warned(response: web.Response, checked: Checked) -> web.Response:
    for warning in checked.warnings:
        response.headers.add("Warning", f"299 - {json.dumps(warning)}")
    return response


def _page(records: Sequence[Record], limit: int | None, token: str, metadata: dict[str, Any]) -> Sequence[Record]:
    """One page of a list: every page carries the revision of the first, so that a watch from there misses nothing."""
    if token:
        try:
            after = json.loads(base64.urlsafe_b64decode(token))
            metadata["resourceVersion"], place = str(int(after["rv"])), (str(after["start"][0]), str(after["start"][1]))
        except (ValueError, KeyError, TypeError, IndexError, binascii.Error) as error:
            raise api_errors.bad_request("continue key is not valid") from error
        records = [record for record in records if _place(record) > place]
    if not limit or len(records) <= limit:
        return records
    token = json.dumps({"rv": int(metadata["resourceVersion"]), "start": _place(records[limit - 1])})
    metadata["continue"] = base64.urlsafe_b64encode(token.encode()).decode()
    metadata["remainingItemCount"] = len(records) - limit
    return records[:limit]


def _place(record: Record) -> tuple[str, str]:
    metadata = record.object["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
