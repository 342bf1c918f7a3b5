"""Request and response bodies: JSON or YAML within limits, and answers in the form that the client accepts."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from pathways_jupyter.local.apiserver import protobuf
from pathways_jupyter.local.apiserver.api_errors import StatusError, bad_request, body_too_large, unsupported_media
from pathways_jupyter.local.apiserver.patch import PatchKind
from pathways_jupyter.local.apiserver.resources import Object

LIMIT = 3 * 1024 * 1024
"""Size limit of a request's body in bytes."""

_DEEPEST = 100
"""Limit of an object's nesting, since the code here recurses; real objects stay far below it."""

_JSON = ("application/json", "text/json", "")
_YAML = ("application/yaml", "application/x-yaml", "text/yaml")


@dataclass(frozen=True)
class Form:
    """The form in which a client wants an answer: ``Table``, ``PartialObjectMetadata`` or plain (empty)."""

    shape: str = ""
    yaml: bool = False


def accepted_form(header: str) -> Form:
    """Read an ``Accept`` header.

    Raises:
      StatusError: 406, the client takes nothing that this server can give.
    """
    if not header.strip():
        return Form()
    for part in header.split(","):
        kind, *parameters = (each.strip() for each in part.split(";"))
        given = dict(each.split("=", 1) for each in parameters if "=" in each)
        if kind in _YAML:
            return Form(yaml=True)
        if kind in ("application/json", "*/*", "application/*", "text/plain"):
            shape = given.get("as", "").removesuffix("List")
            if shape in ("", "Table", "PartialObjectMetadata"):
                return Form(shape)
    raise StatusError(
        "only the following media types are accepted: application/json, application/yaml",
        status=406,
        reason="NotAcceptable",
    )


async def read_bytes(request: web.BaseRequest) -> bytes:
    """Read the whole body.

    Raises:
      StatusError: 400, it is not sent as HTTP has it; 413, it is larger than :data:`LIMIT`.
    """
    if (request.content_length or 0) > LIMIT:
        raise body_too_large(LIMIT)
    pieces, size = [], 0
    try:
        async for piece in request.content.iter_any():
            size += len(piece)
            if size > LIMIT:
                raise body_too_large(LIMIT)
            pieces.append(piece)
    except web.RequestPayloadError as error:
        raise bad_request(f"the body of the request cannot be read: {error}") from error
    return b"".join(pieces)


async def read_object(request: web.BaseRequest, *, optional: bool = False) -> Object:
    """Read the body as one object; an empty body is ``{}`` where it is `optional`.

    Raises:
      StatusError: 400, 413 or 415.
    """
    data = await read_bytes(request)
    if not data and optional:
        return {}
    if request.content_type in _YAML:
        value = parse_yaml(data)
    elif request.content_type in _JSON or request.content_type == "application/octet-stream":
        value = parse_json(data)
    elif request.content_type == protobuf.CONTENT_TYPE:
        value = protobuf.read_protobuf(data)
    else:
        raise unsupported_media(request.content_type, ["application/json", "application/yaml", protobuf.CONTENT_TYPE])
    if not isinstance(value, dict):
        raise bad_request("the body of the request must be an object")
    return value


async def read_patch(request: web.BaseRequest) -> tuple[PatchKind, Any]:
    """Read the body as a patch.

    Raises:
      StatusError: 400, 413 or 415.
    """
    try:
        kind = PatchKind(request.content_type)
    except ValueError as error:
        raise unsupported_media(request.content_type, [str(each) for each in PatchKind]) from error
    data = await read_bytes(request)
    return kind, parse_yaml(data) if kind is PatchKind.APPLY else parse_json(data)


def parse_json(data: bytes) -> Any:
    """Read JSON, strictly.

    Raises:
      StatusError: 400.
    """
    if data.count(b"{") + data.count(b"[") > _DEEPEST and _depth(data) > _DEEPEST:
        raise bad_request(f"the body of the request is nested more than {_DEEPEST} levels deep")
    try:
        value = json.loads(data, parse_constant=_no_constant)
        if b"\\u" in data:
            text = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body of the request is not JSON: {error}") from error
    return value


def parse_yaml(data: bytes) -> Any:
    """Read YAML without aliases, by which a small text could expand to a huge object.

    Raises:
      StatusError: 400.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(data, loader)):
            raise bad_request("aliases in YAML are not supported")
        return parse_json(json.dumps(yaml.load(data, loader), default=_from_yaml).encode())
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise bad_request(f"the body of the request is not YAML: {error}") from error


def encode(obj: Any) -> bytes:
    """Encode an object as compact JSON."""
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def answer(data: bytes | Object, *, status: int = 200, form: Form | None = None) -> web.Response:
    """A response that carries an object, encoded or not."""
    if form is not None and form.yaml:
        import yaml

        obj = json.loads(data) if isinstance(data, bytes) else data
        return web.Response(body=yaml.safe_dump(obj).encode(), status=status, content_type="application/yaml")
    body = data if isinstance(data, bytes) else encode(data)
    return web.Response(body=body, status=status, content_type="application/json")


def refusal(error: StatusError) -> web.Response:
    """A response that carries an error as a ``Status``."""
    response = answer(error.to_object(), status=error.status)
    seconds = error.details.get("retryAfterSeconds")
    if seconds:
        response.headers["Retry-After"] = str(seconds)
    return response


def _from_yaml(value: Any) -> str:
    """YAML reads text that looks like a time as one; Kubernetes objects carry times as text."""
    return str(value.isoformat()) if isinstance(value, datetime.date) else str(value)


def _depth(data: bytes) -> int:
    """The nesting depth of brackets outside strings."""
    deepest = depth = 0
    for bracket in re.findall(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', data):
        if bracket in (b"{", b"["):
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in (b"}", b"]"):
            depth -= 1
    return deepest


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
