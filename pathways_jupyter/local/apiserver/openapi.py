"""OpenAPI documents, made from the field tables: what ``kubectl explain`` and ``kubectl apply`` read.

They contain names and types, but no descriptions of fields: those are in Kubernetes' documentation.
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
_INFO = {"title": "Kubernetes", "version": VERSION["gitVersion"]}


def document(registry: Registry, path: str) -> Object | None:
    """The document at `path`, or None when there is none."""
    if path == "/openapi/v2":
        return _second(registry)
    if path.rstrip("/") == "/openapi/v3":
        return {"paths": {place: _address(registry, place) for place in _places(registry)}}
    place = path.removeprefix("/openapi/v3/")
    types = _places(registry).get(place)
    return None if types is None else _third(place, types)


def _places(registry: Registry) -> dict[str, list[ResourceType]]:
    places: dict[str, list[ResourceType]] = {}
    for each in registry:
        places.setdefault(f"apis/{each.api_version}" if each.group else f"api/{each.version}", []).append(each)
    return places


def _address(registry: Registry, place: str) -> Object:
    """The path of a document; by the hash, clients can cache it until it changes."""
    schemas = [[each.qualified, each.schema] for each in _places(registry)[place]]
    mark = hashlib.sha256(encode(schemas)).hexdigest()[:32].upper()
    return {"serverRelativeURL": f"/openapi/v3/{place}?hash={mark}"}


def _third(place: str, types: list[ResourceType]) -> Object:
    schemas: dict[str, Object] = {"ObjectMeta": _schema("ObjectMeta", "#/components/schemas/")}
    paths: dict[str, Object] = {}
    for each in types:
        schemas |= _schemas(each, "#/components/schemas/")
        paths |= _paths(place, each, "#/components/schemas/")
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def _second(registry: Registry) -> Object:
    definitions: dict[str, Object] = {}
    paths: dict[str, Object] = {}
    for place, types in _places(registry).items():
        for each in types:
            definitions |= _schemas(each, "#/definitions/")
            paths |= _paths(place, each, "#/definitions/")
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions}


def _schemas(resource: ResourceType, where: str) -> dict[str, Object]:
    if resource.custom:
        own = {**resource.schema, "type": "object", "x-kubernetes-group-version-kind": [_kind(resource)]}
        standard = {
            "apiVersion": _PLAIN["string"],
            "kind": _PLAIN["string"],
            "metadata": _reference("ObjectMeta", where),
        }
        own["properties"] = {**resource.schema.get("properties", {}), **standard}
        return {_name(resource): own}
    found = {kind: _schema(kind, where) for kind in walk(resource.kind)}
    found[resource.kind]["x-kubernetes-group-version-kind"] = [_kind(resource)]
    return found


def _schema(kind: str, where: str) -> Object:
    required = [key for key, (_, must) in fields(kind).items() if must]
    properties = {key: _property(kind, key, value, where) for key, (value, _) in fields(kind).items()}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _property(kind: str, key: str, value: str, where: str) -> Object:
    found = _type(value, where)
    element = value.lstrip("[]{}")
    known = fields(element) if value.startswith("[]") and element in kinds() else {}
    merge = [each for each in MERGE_KEYS.get(key, ()) if each in known]
    if merge and "patch" not in kind.lower():
        found = {**found, "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": merge[0]}
    return found


def _type(value: str, where: str) -> Object:
    if value.startswith("[]"):
        return {"type": "array", "items": _type(value[2:], where)}
    if value.startswith("{}"):
        return {"type": "object", "additionalProperties": _type(value[2:], where)}
    return dict(_PLAIN[value]) if value in _PLAIN else _reference(value, where)


def _reference(kind: str, where: str) -> Object:
    if where == "#/definitions/":
        return {"$ref": f"{where}{kind}"}
    return {"allOf": [{"$ref": f"{where}{kind}"}], "default": {}}


def _paths(place: str, resource: ResourceType, where: str) -> dict[str, Object]:
    root = (
        f"/{place}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"/{place}/{resource.plural}"
    )

    def operation(action: str) -> Object:
        query = [("fieldValidation", "string"), ("dryRun", "string"), ("fieldManager", "string")]
        flat = where == "#/definitions/"
        parameters = [
            {"name": name, "in": "query", **({"type": kind} if flat else {"schema": {"type": kind}})}
            for name, kind in query
        ]
        answer: Object = {"description": "OK"}
        found: Object = {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _kind(resource),
            "responses": {"200": answer},
        }
        return found if action in ("get", "list") else {**found, "parameters": parameters}

    return {
        root: {"get": operation("list"), "post": operation("post")},
        f"{root}/{{name}}": {
            "get": operation("get"),
            "put": operation("put"),
            "patch": operation("patch"),
            "delete": operation("delete"),
        },
    }


def _kind(resource: ResourceType) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _name(resource: ResourceType) -> str:
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
