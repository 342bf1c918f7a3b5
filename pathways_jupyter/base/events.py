"""Typed events, and the states of a session.

Supervisor, kernel, server extension and browser exchange these. An event is plain data that is sent as one line of JSON
(:meth:`Event.to_json`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from pathways_jupyter.base import sentences


class SessionState(StrEnum):
    """State of a session; :data:`TRANSITIONS` lists the possible transitions."""

    STARTING = "starting"
    """Connecting; the events name the stage."""
    WAITING = "waiting"
    """All slices are taken, and it waits for some."""
    CONNECTED = "connected"
    """JAX can use all slices."""
    DEGRADED = "degraded"
    """Connected, but at least one of the session's slices is down."""
    INTERRUPTED = "interrupted"
    """The connection to the proxy is lost, and retried; a relay beside the proxy keeps its arrays, and JAX waits."""
    LOST = "lost"
    """The proxy is gone with all arrays; a reconnect gets a new one."""
    CLOSING = "closing"
    """What was made for it is being removed."""
    CLOSED = "closed"
    """Nothing of it is left."""
    FAILED = "failed"
    """It could not be connected."""

    @property
    def is_connected(self) -> bool:
        """Whether there is a proxy with this session's arrays, even if JAX has to wait for it at the moment."""
        return self in _CONNECTED


_CONNECTED = frozenset({SessionState.CONNECTED, SessionState.DEGRADED, SessionState.INTERRUPTED})
_WAITED = frozenset({SessionState.CONNECTED, SessionState.LOST, SessionState.FAILED, SessionState.CLOSING})
"""What follows on waiting; a session that was connected before falls back to LOST when its new proxy fails."""

TRANSITIONS: Mapping[SessionState, frozenset[SessionState]] = {
    SessionState.STARTING: _WAITED | {SessionState.WAITING},
    SessionState.WAITING: _WAITED,
    **{
        each: (_CONNECTED - {each}) | {SessionState.STARTING, SessionState.LOST, SessionState.CLOSING}
        for each in _CONNECTED
    },
    SessionState.LOST: frozenset({SessionState.STARTING, SessionState.CLOSING}),
    SessionState.CLOSING: frozenset({SessionState.CLOSED}),
    SessionState.FAILED: frozenset({SessionState.CLOSING}),
    SessionState.CLOSED: frozenset(),
}


class EventKind(StrEnum):
    """Kinds of events."""

    STAGE = "stage"
    """Connecting entered its next stage; ``data["stage"]`` is a :class:`Stage`."""
    STATE = "state"
    """The session's state changed; ``data["state"]`` is a :class:`SessionState`."""
    SLICE_PLACED = "slice-placed"
    """The resource manager has given the session a slice."""
    SLICE_DOWN = "slice-down"
    """A slice cannot be used; arrays on it are lost."""
    SLICE_HEALED = "slice-healed"
    """It can be used again, without its former arrays."""
    PROXY_LOST = "proxy-lost"
    """The proxy is gone, and so is all data on its devices."""
    SUPERVISOR_LOST = "supervisor-lost"
    """The supervisor ended without cleaning up; only the kernel itself can detect it."""
    WARNING = "warning"
    """Something that the user should know, and that stops nothing."""
    ELASTIC = "elastic"
    """Something happened to an elastic training run, which its kernel recorded; ``data["what"]`` names it."""
    ELASTIC_RUN = "elastic-run"
    """An elastic training run as it is now. Only the newest is kept; it is for pages, and no entry of a timeline."""


SLICE_EVENTS = frozenset({EventKind.SLICE_PLACED, EventKind.SLICE_HEALED, EventKind.SLICE_DOWN})
LOSSES = frozenset({EventKind.PROXY_LOST, EventKind.SUPERVISOR_LOST})
"""Of all arrays of a session."""
_WITHOUT_SLICES = frozenset({SessionState.STARTING, SessionState.LOST, SessionState.CLOSED, SessionState.FAILED})
"""States in which a session holds no slices; while closing it still does."""


class Stage(StrEnum):
    """The stages of connecting, in order."""

    JOB = "job"
    """Wait until the job to attach to runs."""
    DISCOVER = "discover"
    """Find the service, its image, and the holders of its slices."""
    CREATE = "create"
    """Create the proxy Job and its Lease."""
    QUEUE = "queue"
    """Wait until Kueue has quota for the Job."""
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
    """An event of a session.

    Attributes:
      kind: Its kind.
      message: One line for people; a :class:`~pathways_jupyter.base.sentences.Sentence` where pages can translate it.
      at: Time in seconds since the epoch.
      data: The same for programs; JSON values only (``slice``: JAX's index of it in this session, ``number``: the
        service's number of the same slice, ``stage``, ``state``, ``pod``, ...).
    """

    kind: EventKind
    message: str
    at: float = field(default_factory=time.time)
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return this event as JSON values."""
        return {**asdict(self), "message": str(self.message), **sentences.to_json(self.message)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Event:
        """Create an event from JSON values; the inverse of :meth:`to_json`.

        Raises:
          KeyError, TypeError, ValueError, OverflowError: `value` is not an event.
        """
        message = sentences.from_json(str(value["message"]), value.get("text"))
        return cls(EventKind(value["kind"]), message, float(value["at"]), dict(value.get("data", {})))


@dataclass(frozen=True)
class SessionSlice:
    """One slice that a session holds.

    Attributes:
      number: The service's number of it, which is used for people everywhere; None where the log of an older proxy does
        not name it.
      index: JAX's ``slice_index`` of its devices, which counts the slices of one session.
      up: Whether it can be used now.
    """

    number: int | None
    index: int
    up: bool

    def __str__(self) -> str:
        if self.number is None:
            return f"your slice {self.index}"
        return f"slice {self.number}" + (f" (your {self.index})" if self.number != self.index else "")


def slices_after(slices: tuple[SessionSlice, ...], event: Event) -> tuple[SessionSlice, ...]:
    """Return the slices that a session holds after `event`, given those that it held before.

    The supervisor and every process that receives its events use this, so that they agree.
    """
    if event.data.get("state") in _WITHOUT_SLICES:
        return ()
    if event.kind not in SLICE_EVENTS:
        return slices
    index = int(event.data["slice"])
    changed = SessionSlice(event.data.get("number"), index, event.kind is not EventKind.SLICE_DOWN)
    others = [each for each in slices if each.index != index]
    return tuple(sorted([*others, changed], key=lambda each: each.index))
