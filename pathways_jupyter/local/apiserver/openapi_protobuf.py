"""OpenAPI v2 documents as protobuf, the only form in which kubectl reads them.

kubectl asks for this document when it meets a kind that the server does not have; without it, its message is about
the document instead of the kind. The field numbers are those of gnostic's ``openapi.v2`` messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pathways_jupyter.local.apiserver.resources import Object

CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The content type of answers. The one that clients request has an ``@`` in it, which Go's own parser refuses."""
_NAMES = ("proto-openapi.spec.v2@v1.0+protobuf", "proto-openapi.spec.v2.v1.0+protobuf")

_SCHEMA_TEXTS = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
_OPERATIONS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def is_wanted(accept: str) -> bool:
    """Whether a client with this ``Accept`` header wants protobuf."""
    return any(name in accept for name in _NAMES)


def encode(document: Object) -> bytes:
    """An OpenAPI v2 document as a ``Document`` message."""
    info = document["info"]
    paths = b"".join(_named(2, path, _path_item(item)) for path, item in document["paths"].items())
    definitions = b"".join(_named(1, name, _schema(each)) for name, each in document["definitions"].items())
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


def _schema(schema: Mapping[str, Any]) -> bytes:
    return b"".join(_schema_fields(schema))


def _schema_fields(schema: Mapping[str, Any]) -> Iterator[bytes]:
    for key, number in _SCHEMA_TEXTS.items():
        if key in schema:
            yield _text(number, schema[key])
    for each in schema.get("required", ()):
        yield _text(19, each)
    more = schema.get("additionalProperties")
    if isinstance(more, Mapping):
        yield _bytes(21, _bytes(1, _schema(more)))
    elif more is not None:
        yield _bytes(21, _varint(2, int(more)))
    if "type" in schema:
        yield _bytes(22, _text(1, schema["type"]))
    if "items" in schema:
        yield _bytes(23, _bytes(1, _schema(schema["items"])))
    for each in schema.get("allOf", ()):
        yield _bytes(24, _schema(each))
    if "properties" in schema:
        yield _bytes(25, b"".join(_named(1, key, _schema(each)) for key, each in schema["properties"].items()))
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
