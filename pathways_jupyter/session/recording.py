"""Events that a kernel records in its session's log, so that they outlive its cell and reach the sidebar.

A recorded event is sent to everyone who follows the session, and its message is shown as it is. So the supervisor
accepts only some kinds, bounds their size, and refuses the names in ``data`` by which its own events change a session's
state and slices.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.session import client
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.registry import SessionRecord

MOST_EVENTS = 32
"""Most events in one request."""
MESSAGE_CHARACTERS = 500
DATA_BYTES = {
    EventKind.ELASTIC: 2 << 10,
    EventKind.ELASTIC_RUN: 16 << 10,
    EventKind.ARRAYS_LOST: 256,
    EventKind.NOT_SUSPENDED: 2,
}
"""Most bytes of an event's data as JSON: all remembered events must fit into what a new listener may leave unread."""
_RESERVED = frozenset({"state", "stage", "slice", "number", "generation", "unused_since", "suspends_at", "since"})
_FUTURE_SECONDS = 60.0
HINT = "See docs/session-protocol.md."


def record(to: SessionRecord, events: Sequence[Event]) -> None:
    """Add `events` to the log of a session; all or, if one is refused, none.

    Raises:
      ConfigError: An event was refused.
      SessionError: The supervisor has ended, or does not answer.
    """
    client.request(to, Method.RECORD, events=[each.to_json() for each in events])


def checked(params: Mapping[str, Any]) -> list[Event]:
    """Return the events of a request.

    Raises:
      ConfigError: One of them may not be recorded.
    """
    values = params.get("events")
    if not isinstance(values, list) or not 0 < len(values) <= MOST_EVENTS:
        raise ConfigError(f"A request records 1 to {MOST_EVENTS} events.", hint=HINT)
    return [_event(value) for value in values]


def _event(value: Any) -> Event:
    try:
        event = Event.from_json(value)
        size = len(json.dumps(dict(event.data), allow_nan=False))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RecursionError) as error:
        raise ConfigError(f"Not an event: {str(value)[:80]}", hint=HINT) from error
    if event.kind not in DATA_BYTES:
        raise ConfigError(f"An event of kind {event.kind} cannot be recorded.", hint=HINT)
    if size > (most := DATA_BYTES[event.kind]):
        raise ConfigError(f"The event's data has {size} bytes; at most {most} are recorded.", hint=HINT)
    if reserved := sorted(_RESERVED & set(event.data)):
        raise ConfigError(f"A recorded event's data may not have {', '.join(reserved)}.", hint=HINT)
    # Not NaN and not a time that would sort behind everything that is still to come.
    if not math.isfinite(event.at) or not 0 <= event.at <= time.time() + _FUTURE_SECONDS:
        raise ConfigError(f"{event.at} is not a time of the past.", hint=HINT)
    return dataclasses.replace(event, message=one_line(event.message))


def one_line(text: str) -> str:
    """Return `text` on one line, without control characters, and cut to :data:`MESSAGE_CHARACTERS`."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return line if len(line) <= MESSAGE_CHARACTERS else line[: MESSAGE_CHARACTERS - 1] + "…"
