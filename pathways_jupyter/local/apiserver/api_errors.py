"""Errors with the wording of a real API server, so that clients' messages and retries fit.

Raised by the store as well as by the HTTP layer: the store knows why, the HTTP layer only how to say it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.errors import ApiError

if TYPE_CHECKING:
    from pathways_jupyter.local.apiserver.resources import ResourceType


class StatusError(ApiError):
    """An error that the client receives as a ``Status`` object.

    Args:
      message: What a client shows.
      status: The HTTP status code.
      reason: The machine-readable reason, e.g. ``NotFound``.
      details: The Status's ``details``: name, group, kind, causes.
    """

    def __init__(self, message: str, *, status: int, reason: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message, status=status, reason=reason)
        self.details = details or {}

    def to_object(self) -> dict[str, Any]:
        """The ``Status`` object that a client receives."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "details": self.details,
            "code": self.status,
        }


def bad_request(message: str) -> StatusError:
    """400: the request cannot be read."""
    return StatusError(message, status=400, reason="BadRequest")


def unauthorized() -> StatusError:
    """401: no token, or an unknown one."""
    return StatusError("Unauthorized", status=401, reason="Unauthorized")


def forbidden(message: str, resource: ResourceType | None = None, name: str = "") -> StatusError:
    """403: the user may not do this."""
    return StatusError(message, status=403, reason="Forbidden", details=_details(resource, name))


def not_found(resource: ResourceType, name: str) -> StatusError:
    """404: there is no such object."""
    return StatusError(
        f'{resource.qualified} "{name}" not found', status=404, reason="NotFound", details=_details(resource, name)
    )


def no_such_resource() -> StatusError:
    """404: there is no such kind of object, or no such path."""
    return StatusError("the server could not find the requested resource", status=404, reason="NotFound")


def method_not_allowed() -> StatusError:
    """405: the object has no such verb."""
    return StatusError(
        "the server does not allow this method on the requested resource", status=405, reason="MethodNotAllowed"
    )


def already_exists(resource: ResourceType, name: str) -> StatusError:
    """409: the name is taken."""
    return StatusError(
        f'{resource.qualified} "{name}" already exists',
        status=409,
        reason="AlreadyExists",
        details=_details(resource, name),
    )


def conflict(resource: ResourceType, name: str, why: str = "") -> StatusError:
    """409: the object changed since the caller read it, or a precondition does not hold."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    return StatusError(
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}',
        status=409,
        reason="Conflict",
        details=_details(resource, name),
    )


def gone(since: int, oldest: int) -> StatusError:
    """410: history does not reach back that far; list again."""
    return StatusError(f"too old resource version: {since} ({oldest})", status=410, reason="Expired")


def too_large(since: int, current: int) -> StatusError:
    """504: the resourceVersion is larger than the current one."""
    return StatusError(
        f"Too large resource version: {since}, current: {current}",
        status=504,
        reason="Timeout",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )


def body_too_large(limit: int) -> StatusError:
    """413: the request's body exceeds `limit` bytes."""
    return StatusError(f"Request entity too large: limit is {limit}", status=413, reason="RequestEntityTooLarge")


def unsupported_media(sent: str, accepted: Sequence[str]) -> StatusError:
    """415: the body is in a format that this server does not read."""
    return StatusError(
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
        f" (got {sent!r})",
        status=415,
        reason="UnsupportedMediaType",
    )


def invalid(resource: ResourceType, name: str, causes: Sequence[tuple[str, str]]) -> StatusError:
    """422: the object breaks a rule.

    Args:
      causes: Pairs of a field's path and what is wrong with it.
    """
    messages = [f"{field}: {why}" for field, why in causes]
    text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return StatusError(
        f'{kind} "{name}" is invalid: {text}',
        status=422,
        reason="Invalid",
        details={
            **_details(resource, name),
            "kind": resource.kind,
            "causes": [
                {"reason": "FieldValueInvalid", "message": why, "field": field.removesuffix(":")}
                for field, why in causes
            ],
        },
    )


def _details(resource: ResourceType | None, name: str) -> dict[str, Any]:
    if resource is None:
        return {}
    details = {"kind": resource.plural}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    return details
