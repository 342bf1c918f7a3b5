"""OpenAPI documents, made from the field tables: what ``kubectl explain`` and ``kubectl apply`` read.

They contain names and types, but no descriptions of fields: those are in Kubernetes' documentation. kubectl reads v2
documents only as protobuf. It asks for one when it meets a kind that the server does not have; without it, its message
is about the document instead of the kind. The field numbers are those of gnostic's ``openapi.v2`` messages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

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
_SECOND = "#/definitions/"
"""Where version 2 of the document keeps its schemas."""
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
            definitions |= _schemas(each, _SECOND)
            paths |= _paths(place, each, _SECOND)
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions}


def _schemas(resource: ResourceType, where: str) -> dict[str, Object]:
    if resource.custom:
        own = {**resource.schema, "type": "object", "x-kubernetes-group-version-kind": [_kind(resource)]}
        standard = {
            "apiVersion": _PLAIN["string"],
            "kind": _PLAIN["string"],
            "metadata": _reference("ObjectMeta", where),
        }
        known = resource.schema.get("properties", {})
        if where == _SECOND:
            known = {key: _without_closed_fields(each) for key, each in known.items()}
        own["properties"] = {**known, **standard}
        return {_name(resource): own}
    found = {kind: _schema(kind, where) for kind in walk(resource.kind)}
    found[resource.kind]["x-kubernetes-group-version-kind"] = [_kind(resource)]
    return found


def _without_closed_fields(schema: Object) -> Object:
    """Leave out the fields of what may have others too: by version 2, kubectl refuses all that are not named."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return {key: each for key, each in schema.items() if key not in ("properties", "required", "items")}
    found = dict(schema)
    if "properties" in schema:
        found["properties"] = {key: _without_closed_fields(each) for key, each in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found[key] = _without_closed_fields(schema[key])
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
    if where == _SECOND:
        return {"$ref": f"{where}{kind}"}
    return {"allOf": [{"$ref": f"{where}{kind}"}], "default": {}}


def _paths(place: str, resource: ResourceType, where: str) -> dict[str, Object]:
    root = (
        f"/{place}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"/{place}/{resource.plural}"
    )

    def operation(action: str) -> Object:
        query = [("fieldValidation", "string"), ("dryRun", "string"), ("fieldManager", "string")]
        flat = where == _SECOND
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


PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The content type of answers. The one that clients request has an ``@`` in it, which Go's own parser refuses."""
_NAMES = ("proto-openapi.spec.v2@v1.0+protobuf", "proto-openapi.spec.v2.v1.0+protobuf")

_SCHEMA_TEXTS = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
_OPERATIONS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def wants_protobuf(accept: str) -> bool:
    """Whether a client with this ``Accept`` header wants protobuf."""
    return any(name in accept for name in _NAMES)


def as_protobuf(document: Object) -> bytes:
    """An OpenAPI v2 document as a ``Document`` message."""
    info = document["info"]
    paths = b"".join(_named(2, path, _path_item(item)) for path, item in document["paths"].items())
    definitions = b"".join(_named(1, name, _encoded_schema(each)) for name, each in document["definitions"].items())
    return (
        _text(1, document["swagger"])
        + _bytes(2, _text(1, info["title"]) + _text(2, info["version"]))
        + _bytes(8, paths)
        + _bytes(9, definitions)
    )


def _path_item(item: Object) -> bytes:
    return b"".join(_bytes(_OPERATIONS[method], _operation(each)) for method, each in item.items())


def _operation(operation: Object) -> bytes:
    parameters = b"".join(
        # ParametersItem.parameter, Parameter.non_body_parameter, NonBodyParameter.query_parameter_sub_schema
        _bytes(
            8, _bytes(1, _bytes(2, _bytes(3, _text(2, each["in"]) + _text(4, each["name"]) + _text(6, each["type"]))))
        )
        for each in operation.get("parameters", ())
    )
    responses = b"".join(
        _named(1, code, _bytes(1, _text(1, each["description"]))) for code, each in operation["responses"].items()
    )
    return parameters + _bytes(9, responses) + _extensions(13, operation)


def _encoded_schema(schema: Mapping[str, Any]) -> bytes:
    return b"".join(_schema_fields(schema))


def _schema_fields(schema: Mapping[str, Any]) -> Iterator[bytes]:
    for key, number in _SCHEMA_TEXTS.items():
        if key in schema:
            yield _text(number, schema[key])
    for each in schema.get("required", ()):
        yield _text(19, each)
    more = schema.get("additionalProperties")
    if isinstance(more, Mapping):
        yield _bytes(21, _bytes(1, _encoded_schema(more)))
    elif more is not None:
        yield _bytes(21, _varint(2, int(more)))
    if "type" in schema:
        yield _bytes(22, _text(1, schema["type"]))
    if "items" in schema:
        yield _bytes(23, _bytes(1, _encoded_schema(schema["items"])))
    for each in schema.get("allOf", ()):
        yield _bytes(24, _encoded_schema(each))
    if "properties" in schema:
        yield _bytes(25, b"".join(_named(1, key, _encoded_schema(each)) for key, each in schema["properties"].items()))
    yield _extensions(31, schema)


def _extensions(number: int, source: Mapping[str, Any]) -> bytes:
    """Fields that begin with ``x-``, each as YAML, which JSON is."""
    return b"".join(
        _named(number, key, _text(2, json.dumps(value))) for key, value in source.items() if key.startswith("x-")
    )


def _named(number: int, name: str, value: bytes) -> bytes:
    return _bytes(number, _text(1, name) + _bytes(2, value))


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode("utf-8", "replace"))


def _bytes(number: int, value: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(value)) + value


def _varint(number: int, value: int) -> bytes:
    return _number(number << 3) + _number(value)


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
