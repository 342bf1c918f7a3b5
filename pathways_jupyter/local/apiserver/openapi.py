"""OpenAPI documents, made from the field tables: what ``kubectl explain``, ``apply`` and ``create`` read.

They contain names and types, but no descriptions of fields: those are in Kubernetes' documentation.

Version 2 names no kind. kubectl reads it, only as protobuf, when it meets a kind that version 3 does not have: without
a document its message would be about the document instead of the kind. Older ones, which know no version 3, leave the
validation to the server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from pathways_jupyter.local.apiserver.api_discovery import VERSION
from pathways_jupyter.local.apiserver.bodies import encode
from pathways_jupyter.local.apiserver.object_schema import fields, kinds, walk
from pathways_jupyter.local.apiserver.patch import MERGE_KEYS
from pathways_jupyter.local.apiserver.resources import Object, Registry, ResourceType

_PLAIN: Mapping[str, Object] = {
    "string": {"type": "string"},
    "integer": {"type": "integer", "format": "int64"},
    "number": {"type": "number", "format": "double"},
    "boolean": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "quantity": {"type": "string"},
    "int-or-string": {"x-kubernetes-int-or-string": True, "type": "string", "format": "int-or-string"},
    "any": {"type": "object"},
}
_SCHEMAS = "#/components/schemas/"
_INFO = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
VERSION_2: Object = {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The content type of answers. The one that clients request has an ``@`` in it, which Go's own parser refuses."""


def version_2_as_protobuf() -> bytes:
    """Encode :data:`VERSION_2` as a ``Document`` message of gnostic's ``openapi.v2``."""

    def text(number: int, value: bytes) -> bytes:
        return bytes((number << 3 | 2, len(value))) + value

    info = text(1, _INFO["title"].encode()) + text(2, _INFO["version"].encode())
    return text(1, b"2.0") + text(2, info) + text(8, b"") + text(9, b"")


def document(registry: Registry, path: str) -> Object | None:
    """The document of version 3 at `path`, or None when there is none."""
    places: dict[str, list[ResourceType]] = {}
    for each in registry:
        places.setdefault(f"apis/{each.api_version}" if each.group else f"api/{each.version}", []).append(each)
    if path.rstrip("/") == "/openapi/v3":
        addresses = {}
        for place, types in places.items():
            # By the hash, clients can cache a document until it changes.
            mark = hashlib.sha256(encode([[each.qualified, each.schema] for each in types])).hexdigest()[:32].upper()
            addresses[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={mark}"}
        return {"paths": addresses}
    place = path.removeprefix("/openapi/v3/")
    if place not in places:
        return None
    schemas: dict[str, Object] = {"ObjectMeta": _schema("ObjectMeta")}
    paths: dict[str, Object] = {}
    for each in places[place]:
        schemas |= _schemas(each)
        paths |= _paths(place, each)
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def _schemas(resource: ResourceType) -> dict[str, Object]:
    kind = [{"group": resource.group, "version": resource.version, "kind": resource.kind}]
    if not resource.custom:
        found = {each: _schema(each) for each in walk(resource.kind)}
        found[resource.kind]["x-kubernetes-group-version-kind"] = kind
        return found
    own = {**resource.schema, "type": "object", "x-kubernetes-group-version-kind": kind}
    standard = {
        "apiVersion": _PLAIN["string"],
        "kind": _PLAIN["string"],
        "metadata": _type("ObjectMeta"),
    }
    own["properties"] = {**resource.schema.get("properties", {}), **standard}
    return {".".join([*reversed(resource.group.split(".")), resource.version, resource.kind]): own}


def _schema(kind: str) -> Object:
    required = [key for key, (_, must) in fields(kind).items() if must]
    properties = {}
    for key, (value, _) in fields(kind).items():
        properties[key] = _type(value)
        element = value.lstrip("[]{}")
        known = fields(element) if value.startswith("[]") and element in kinds() else {}
        merge = [each for each in MERGE_KEYS.get(key, ()) if each in known]
        if merge and "patch" not in kind.lower():
            properties[key] |= {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": merge[0]}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _type(value: str) -> Object:
    if value.startswith("[]"):
        return {"type": "array", "items": _type(value[2:])}
    if value.startswith("{}"):
        return {"type": "object", "additionalProperties": _type(value[2:])}
    return dict(_PLAIN[value]) if value in _PLAIN else {"allOf": [{"$ref": f"{_SCHEMAS}{value}"}], "default": {}}


def _paths(place: str, resource: ResourceType) -> dict[str, Object]:
    root = (
        f"/{place}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"/{place}/{resource.plural}"
    )
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("fieldValidation", "dryRun", "fieldManager")
    ]
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}

    def operation(action: str) -> Object:
        found: Object = {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
            "responses": {"200": {"description": "OK"}},
        }
        return found if action in ("get", "list") else {**found, "parameters": parameters}

    one = {verb: operation(verb) for verb in ("get", "put", "patch", "delete")}
    return {root: {"get": operation("list"), "post": operation("post")}, f"{root}/{{name}}": one}
