"""Request and response bodies: JSON, protobuf and patches within limits, and answers in JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from aiohttp import web

from pathways_jupyter.local.apiserver import protobuf
from pathways_jupyter.local.apiserver.api_errors import StatusError, bad_request, unsupported_media
from pathways_jupyter.local.apiserver.patch import PatchKind
from pathways_jupyter.local.apiserver.resources import Object, encode

_LARGEST_BYTES = 3 * 1024 * 1024
_DEEPEST = 100
"""Limit of an object's nesting, since the code here recurses; real objects stay far below it."""

_JSON = ("application/json", "text/json", "")


def wants_table(header: str) -> bool:
    """Return whether a client with this ``Accept`` header wants objects as a ``Table``.

    Raises:
      StatusError: 406, it takes nothing that this server can give.
    """
    if not header.strip():
        return False
    for part in header.split(","):
        kind, *parameters = (each.strip() for each in part.split(";"))
        options = dict(each.split("=", 1) for each in parameters if "=" in each)
        # Whatever else it would rather have, e.g. only the metadata, it names plain JSON after that.
        if kind in ("application/json", "*/*", "application/*", "text/plain") and options.get("as", "") in (
            "",
            "Table",
        ):
            return "as" in options
    raise StatusError(406, "only the following media types are accepted: application/json")


async def read_object(request: web.BaseRequest, *, optional: bool = False) -> Object:
    """Read the body as one object; an empty body is ``{}`` where it is `optional`.

    Raises:
      StatusError: 400, 413 or 415.
    """
    data = await _read_bytes(request)
    if not data and optional:
        return {}
    if request.content_type in _JSON or request.content_type == "application/octet-stream":
        value = _parse_json(data)
    elif request.content_type == protobuf.CONTENT_TYPE:
        value = protobuf.read_protobuf(data)
    else:
        raise unsupported_media(request.content_type, ["application/json", protobuf.CONTENT_TYPE])
    if not isinstance(value, dict):
        raise bad_request("the body of the request must be an object")
    return value


async def read_patch(request: web.BaseRequest) -> tuple[PatchKind, Object]:
    """Read the body as a patch.

    Raises:
      StatusError: 400, 413 or 415.
    """
    try:
        kind = PatchKind(request.content_type)
    except ValueError as error:
        raise unsupported_media(request.content_type, [str(each) for each in PatchKind]) from error
    # An apply patch is YAML by name; kubectl and other clients send JSON.
    patch = _parse_json(await _read_bytes(request))
    if not isinstance(patch, dict):
        raise bad_request(f"a patch of type {kind} must be an object")
    return kind, patch


async def _read_bytes(request: web.BaseRequest) -> bytes:
    """Read the whole body, within the limit."""
    too_large = StatusError(413, f"Request entity too large: limit is {_LARGEST_BYTES}")
    if (request.content_length or 0) > _LARGEST_BYTES:
        raise too_large
    data = bytearray()
    try:
        async for piece in request.content.iter_any():
            data += piece
            if len(data) > _LARGEST_BYTES:
                raise too_large
    except web.RequestPayloadError as error:
        raise bad_request(f"the body of the request cannot be read: {error}") from error
    return bytes(data)


def _parse_json(data: bytes) -> Any:
    """Read JSON, strictly."""
    if data.count(b"{") + data.count(b"[") > _DEEPEST:
        depth = 0
        # Strings are matched too, so that brackets inside them do not count.
        for token in re.findall(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', data):
            depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(token, 0)
            if depth > _DEEPEST:
                raise bad_request(f"the body of the request is nested more than {_DEEPEST} levels deep")

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body of the request is not JSON: {error}") from error


def answer(data: bytes | Object, *, status: int = 200) -> web.Response:
    """Return a response that carries an object, encoded or not."""
    body = data if isinstance(data, bytes) else encode(data)
    return web.Response(body=body, status=status, content_type="application/json")
