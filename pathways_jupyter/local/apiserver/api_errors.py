"""Errors with the wording of a real API server, so that clients' messages and retries fit.

Raised by the store as well as by the HTTP layer: the store knows why, the HTTP layer only how to say it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.errors import ApiError

if TYPE_CHECKING:
    from pathways_jupyter.local.apiserver.resources import ResourceType

_REASONS: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    500: "InternalError",
}


class StatusError(ApiError):
    """An error that the client receives as a ``Status`` object.

    Args:
      status: The HTTP status code.
      message: What a client shows.
      resource: The type that it is about.
      name: The object that it is about.
      reason: The machine-readable reason; by default the usual one for the code.
      details: What else the Status's ``details`` have, e.g. causes.
    """

    def __init__(
        self,
        status: int,
        message: str,
        resource: ResourceType | None = None,
        name: str = "",
        *,
        reason: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, status=status, reason=_REASONS[status] if reason is None else reason)
        facts = {"kind": resource.plural, "name": name, "group": resource.group} if resource is not None else {}
        self.details = {**{key: value for key, value in facts.items() if value}, **(details or {})}

    def to_object(self) -> dict[str, Any]:
        """Return the ``Status`` object that a client receives."""
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
    """Return a 400: the request cannot be read."""
    return StatusError(400, message)


def not_found(resource: ResourceType, name: str) -> StatusError:
    """Return a 404: there is no such object."""
    return StatusError(404, f'{resource.qualified} "{name}" not found', resource, name)


def no_such_resource() -> StatusError:
    """Return a 404: there is no such kind of object, or no such path."""
    return StatusError(404, "the server could not find the requested resource")


def method_not_allowed() -> StatusError:
    """Return a 405: the object has no such verb."""
    return StatusError(405, "the server does not allow this method on the requested resource")


def conflict(resource: ResourceType, name: str, why: str = "") -> StatusError:
    """Return a 409: the object changed since the caller read it, or a precondition does not hold."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    return StatusError(409, f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}', resource, name)


def gone(since: int, oldest: int) -> StatusError:
    """Return a 410: history does not reach back that far; list again."""
    return StatusError(410, f"too old resource version: {since} ({oldest})")


def unsupported_media(sent: str, accepted: Sequence[str]) -> StatusError:
    """Return a 415: the body is in a format that this server does not read."""
    formats = f"accepted media types include: {', '.join(accepted)} (got {sent!r})"
    return StatusError(415, f"the body of the request was in an unknown format - {formats}")


def invalid(resource: ResourceType, name: str, causes: Sequence[tuple[str, str]]) -> StatusError:
    """Return a 422: the object breaks a rule.

    Args:
      causes: Pairs of a field's path and what is wrong with it.
    """
    messages = [f"{field}: {why}" for field, why in causes]
    text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    listed = [{"reason": "FieldValueInvalid", "message": why, "field": field} for field, why in causes]
    details = {"kind": resource.kind, "causes": listed}
    return StatusError(422, f'{kind} "{name}" is invalid: {text}', resource, name, details=details)
