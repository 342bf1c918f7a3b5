"""Reads objects in Kubernetes' protobuf encoding, which typed Go clients (half of kubectl's commands) send.

Answers are always JSON, which those clients accept; they go by the content type.
"""

from __future__ import annotations

import base64
import datetime
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import Any

from pathways_jupyter.local.apiserver.api_errors import bad_request
from pathways_jupyter.local.apiserver.resources import Object

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"

_Field = tuple[int, int | bytes]


class _Malformed(Exception):
    """The bytes are not protobuf, or not of the kind that they claim."""


def read_protobuf(data: bytes) -> Object:
    """Return the object that `data` holds, as JSON.

    Raises:
      StatusError: 400, it is malformed or of a kind that this server does not know.
    """
    try:
        if not data.startswith(_MAGIC):
            raise _Malformed("the prefix of Kubernetes' encoding is missing")
        envelope = dict(_fields(data[len(_MAGIC) :]))
        meta = {number: _text(value) for number, value in _fields(_bytes(envelope.get(1, b"")))}
        kind = meta.get(2, "")
        if kind not in _numbers():
            raise _Malformed(f"the kind {kind!r} is unknown")
        obj = _message(_bytes(envelope.get(2, b"")), kind)
    except _Malformed as error:
        raise bad_request(f"the body of the request is not valid protobuf: {error}") from error
    return {"apiVersion": meta.get(1, ""), "kind": kind, **obj}


@functools.cache
def _numbers() -> Mapping[str, Mapping[int, tuple[str, str]]]:
    text = files(__package__).joinpath("protobuf.json").read_text(encoding="utf-8")
    return {
        kind: {int(number): (name, value) for number, (name, value) in numbers.items()}
        for kind, numbers in json.loads(text).items()
    }


def _message(data: bytes, kind: str) -> Object:
    obj: Object = {}
    declared = _numbers()[kind]
    for number, raw in _fields(data):
        if number not in declared:
            continue
        name, value = declared[number]
        if value.startswith("[]"):
            obj.setdefault(name, []).append(_value(raw, value[2:]))
        elif value.startswith("{}"):
            entry = dict(_fields(_bytes(raw)))
            obj.setdefault(name, {})[_text(entry.get(1, b""))] = _value(entry.get(2, b""), value[2:])
        elif not name:
            obj |= _message(_bytes(raw), value)
        else:
            each = _value(raw, value)
            if each not in ("", None):
                obj[name] = each
    return obj


def _value(raw: int | bytes, kind: str) -> Any:
    if kind == "integer":
        return _integer(raw)
    if kind == "boolean":
        return bool(_integer(raw))
    if kind == "string":
        return _text(raw)
    if kind == "bytes":
        return base64.b64encode(_bytes(raw)).decode()
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(dict(_fields(_bytes(raw))))
    if kind not in _numbers():
        raise _Malformed(f"the kind {kind!r} is unknown")
    return _message(_bytes(raw), kind)


def _time(parts: dict[int, int | bytes], *, micro: bool) -> str | None:
    """Return the text of a ``Time``, or of a ``MicroTime``, which always has six digits after the point."""
    micros = _integer(parts.get(2, 0)) // 1000
    try:
        moment = datetime.datetime.fromtimestamp(_integer(parts.get(1, 0)), datetime.UTC).replace(microsecond=micros)
    except (OverflowError, ValueError, OSError) as error:
        raise _Malformed("a time out of range") from error
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ") if parts else None


_SPECIAL: Mapping[str, Callable[[dict[int, int | bytes]], Any]] = {
    "Time": lambda parts: _time(parts, micro=False),
    "MicroTime": lambda parts: _time(parts, micro=True),
    "Quantity": lambda parts: _text(parts.get(1, b"")),
    "IntOrString": lambda parts: _text(parts.get(3, b"")) if _integer(parts.get(1, 0)) else _integer(parts.get(2, 0)),
    "FieldsV1": lambda _: None,
}


def _fields(data: bytes) -> Iterator[_Field]:
    """Return the fields of a message whose type the library does not know: numbers as integers, all else as bytes."""
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    message = Empty()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise _Malformed(str(error)) from error
    unknown_fields: Any = UnknownFieldSet(message)
    for each in unknown_fields:
        if not isinstance(each.data, int | bytes):
            raise _Malformed("a group")
        yield each.field_number, each.data


def _integer(raw: int | bytes) -> int:
    if isinstance(raw, bytes):
        raise _Malformed("a number was expected")
    raw &= (1 << 64) - 1
    return raw - (1 << 64) if raw >> 63 else raw


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise _Malformed("a number was not expected")
    return raw


def _text(raw: int | bytes) -> str:
    try:
        return _bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise _Malformed("text that is not UTF-8") from error
