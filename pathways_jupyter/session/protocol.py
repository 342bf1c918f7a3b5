"""The protocol between a supervisor and its clients: one JSON object per line, over a unix socket.

The same protocol runs on two kinds of connection. The *owner's* is the socket pair that a kernel hands to the
supervisor it starts: it opens with ``start``, carries events for as long as the session lives, and its end is the
kernel's end. Other clients (command line, server extension) connect to the session's control socket.

A request is ``{"id", "method", "params"}``; its answer ``{"id", "result"}`` or ``{"id", "error"}``; an event is sent
unrequested as ``{"event"}``. In the same way the supervisor asks its owner for ``arrays`` and ``idle``, and to
``suspend``. Errors keep their class, so that an API server's refusal reads the same in the kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pathways_jupyter.base import errors, json_lines, sentences
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ApiError, PathwaysError, SessionError
from pathways_jupyter.base.events import Event
from pathways_jupyter.base.text import without_infinity

MAX_START = 4 * json_lines.MAX_BYTES
"""Limit of a line of a supervisor's own kernel: a start carries the environment, of up to 2 MiB on Linux."""
STANDS_BY = "--stands-by"
"""Argument for a supervisor that is started in advance."""
OF_PROXY = ("generation", "pod", "service", "instances", "connected_since")
"""Fields of the record that are those of its present proxy; the event that it is connected carries them."""


class Method(StrEnum):
    """The requests to a supervisor; ``IDLE``, ``ARRAYS`` and ``SUSPEND`` it also asks the kernel."""

    START = "start"
    """Owner only, and first: connect as ``params["config"]`` says. Answers with the record once connected."""
    ATTACH = "attach"
    """Become the owner of a session that lingers, e.g. after a kernel's restart. Answers with the record."""
    STATUS = "status"
    """Answers with the session's record."""
    EVENTS = "events"
    """Answers at once; from then on the connection carries every event, the past ones first."""
    RECONNECT = "reconnect"
    """Replace the proxy by a new one. Answers with the record once connected.

    ``params["instances"]`` and ``params["wait"]`` change these settings of the session from then on.
    """
    SUSPEND = "suspend"
    """Have the kernel suspend the session, now or after the cell that runs. Answers with ``after_cell``: which it is.

    The supervisor asks the kernel, because of ``why``, and ``after_cell`` if it may be later. The answer is the same;
    null if it is not going to try.
    """
    SUSPENDED = "suspended"
    """The kernel has saved ``count`` arrays of ``bytes`` in ``place``: remove the proxy. Answers with the record then.
    """
    TRANSFER = "transfer"
    """The kernel writes arrays to suspend, or reads them to resume: how far it is.

    ``params`` has ``done`` and ``total`` bytes, and about how many seconds are ``left`` or null. Without ``total`` it
    has ended, and the session is as it was before. Answers with the record.
    """
    RESUMED = "resumed"
    """The kernel has the saved arrays back, so that the record need not name them; ``outcome`` says which. Answers with
    the record.
    """
    CANCEL = "cancel"
    """Stop making the proxy that ``reconnect`` asked for, which then fails. Answers with the record once that is so."""
    DISCONNECT = "disconnect"
    """End the session. Answers once its objects in the cluster are removed, or with those that could not be."""
    RECORD = "record"
    """Add ``params["events"]`` to the session's log; see :mod:`~pathways_jupyter.session.recording`."""
    IDLE = "idle"
    """The supervisor asks the kernel for how many seconds no cell has run; 0 while one does, null without cells."""
    KEEP = "keep"
    """Count as used now, so that it is not suspended soon for being idle. Answers with the record."""
    ARRAYS = "arrays"
    """Answers with the ``count`` and ``bytes`` of the arrays that the kernel has on the session's devices.

    The supervisor asks the kernel, which answers while a cell runs too; null if it does not, within a second.
    """
    CUT = "cut"
    """Drop the tunnel's connections to the relay, as a network does that fails, to see that arrays outlive it.

    Answers with how many there were; null without a relay, where nothing is dropped.
    """


@dataclasses.dataclass(frozen=True)
class Request:
    """One request to a supervisor."""

    id: int
    method: Method
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Response:
    """The answer to the request of the same id: a result or an error."""

    id: int
    result: Any = None
    error: PathwaysError | None = None


Message = Request | Response | Event


def encode(message: Message) -> bytes:
    """Return `message` as one line, with its newline."""
    if isinstance(message, Event):
        value: dict[str, Any] = {"event": message.to_json()}
    elif isinstance(message, Request):
        value = {"id": message.id, "method": message.method, "params": dict(message.params)}
    elif message.error is not None:
        value = {"id": message.id, "error": error_to_json(message.error)}
    else:
        value = {"id": message.id, "result": message.result}
    return json_lines.encode(value)


def decode(line: bytes) -> Message:
    """Invert :func:`encode`.

    Raises:
      SessionError: The line is not a message of this protocol.
    """
    try:
        value = json_lines.decode(line)
        if "event" in value:
            return Event.from_json(value["event"])
        if "method" in value:
            return Request(int(value["id"]), Method(value["method"]), dict(value.get("params") or {}))
        if "error" in value:
            return Response(int(value["id"]), error=error_from_json(value["error"]))
        return Response(int(value["id"]), result=value["result"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        # A client of the socket may send anything, such as 1e400 for a number.
        raise SessionError(
            f"Not a message of the session protocol: {line[:80]!r}.",
            hint="Kernel and supervisor may run different versions of pathways_jupyter: restart the kernel.",
        ) from error


def error_to_json(error: PathwaysError) -> dict[str, Any]:
    """Return an error's class (the nearest one that both sides know), message and hint as JSON values."""
    kind = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
    value: dict[str, Any] = {"type": kind.__name__, "message": str(error), **sentences.to_json(error.hint)}
    if isinstance(error, ApiError):
        value |= {"status": error.status, "reason": error.reason}
    return value


def error_from_json(value: Mapping[str, Any]) -> PathwaysError:
    """Invert :func:`error_to_json`; a class that this version does not know becomes its nearest parent."""
    kind = getattr(errors, str(value["type"]), PathwaysError)
    message, hint = str(value["message"]), sentences.from_json(value)
    if isinstance(kind, type) and issubclass(kind, ApiError):
        return kind(message, status=int(value.get("status", 0)), reason=str(value.get("reason", "")), hint=hint)
    if isinstance(kind, type) and issubclass(kind, PathwaysError):
        return kind(message, hint=hint)
    return PathwaysError(message, hint=hint)


def config_to_json(config: ConnectConfig) -> dict[str, Any]:
    """Return `config` as JSON values; an endless wait is ``"inf"``, as in a setting."""
    values: dict[str, Any] = without_infinity(dataclasses.asdict(config))
    return values


def config_from_json(value: Mapping[str, Any]) -> ConnectConfig:
    """Invert :func:`config_to_json`; settings that this version does not know are dropped."""
    settings: dict[str, Any] = {}
    for each in dataclasses.fields(ConnectConfig):
        if each.name in value:
            item = value[each.name]
            # JSON has lists where a config has tuples, and no infinite numbers.
            settings[each.name] = (
                tuple(item) if isinstance(item, list) else float(item) if each.type == "float" else item
            )
    return ConnectConfig(**settings)
