"""The typed events that everything reports in, and the states a session goes through.

Supervisor, kernel, server extension and browser all speak in these. An event is plain data: it travels as one line of
JSON (:meth:`Event.to_json`) and reads the same on every side.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class SessionState(StrEnum):
    """Where a session stands. :data:`TRANSITIONS` is the whole table."""

    STARTING = "starting"
    WAITING = "waiting"
    CONNECTED = "connected"
    LOST = "lost"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


TRANSITIONS: Mapping[SessionState, frozenset[SessionState]] = {
    # A session that was connected before falls back to LOST when its new proxy does not come up.
    SessionState.STARTING: frozenset(
        {SessionState.WAITING, SessionState.CONNECTED, SessionState.LOST, SessionState.FAILED, SessionState.CLOSING}
    ),
    SessionState.WAITING: frozenset(
        {SessionState.CONNECTED, SessionState.LOST, SessionState.FAILED, SessionState.CLOSING}
    ),
    # From CONNECTED to STARTING leads a reconnect that nothing forced.
    SessionState.CONNECTED: frozenset({SessionState.STARTING, SessionState.LOST, SessionState.CLOSING}),
    SessionState.LOST: frozenset({SessionState.STARTING, SessionState.CLOSING}),
    SessionState.CLOSING: frozenset({SessionState.CLOSED}),
    SessionState.FAILED: frozenset({SessionState.CLOSING}),
    SessionState.CLOSED: frozenset(),
}


class EventKind(StrEnum):
    """What an event tells."""

    STAGE = "stage"
    """Connecting went one stage further; ``data["stage"]`` names it."""
    STATE = "state"
    """The session's state changed; ``data["state"]`` is a :class:`SessionState`."""
    SLICE_PLACED = "slice-placed"
    SLICE_DOWN = "slice-down"
    SLICE_HEALED = "slice-healed"
    PROXY_LOST = "proxy-lost"
    """The proxy is gone, and with it everything that was on its devices."""
    SUPERVISOR_LOST = "supervisor-lost"
    """The supervisor ended without having cleaned up; only the kernel itself can tell."""
    WARNING = "warning"


class Stage(StrEnum):
    """The stages of connecting, in order."""

    DISCOVER = "discover"
    """Find the service, its image, and who holds its slices."""
    CREATE = "create"
    """Create the proxy Job and its Lease."""
    START = "start"
    """Wait until the proxy pod is ready."""
    PLACE = "place"
    """Wait until the resource manager placed every slice."""
    TUNNEL = "tunnel"
    """Open the tunnel to the proxy."""
    JAX = "jax"
    """Point the kernel's JAX at the tunnel."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a session.

    Attributes:
      kind: What it tells.
      message: One line for a person.
      at: When, in seconds since the epoch.
      data: The same for a program; JSON values only (``slice``: index, ``stage``, ``state``, ``pod``, ...).
    """

    kind: EventKind
    message: str
    at: float = field(default_factory=time.time)
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """This event as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Event:
        """The inverse of :meth:`to_json`."""
        return cls(EventKind(value["kind"]), value["message"], value["at"], value.get("data", {}))
