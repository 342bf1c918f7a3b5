"""Typed events, and the states of a session.

Supervisor, kernel, server extension and browser exchange these. An event is plain data that is sent as one line of JSON
(:meth:`Event.to_json`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from pathways_jupyter.base import text
from pathways_jupyter.base.tones import Tone, Toned


class SessionState(Toned):
    """State of a session; :data:`TRANSITIONS` lists the possible transitions."""

    STARTING = "starting", Tone.WAIT
    """Connecting; the events name the stage."""
    WAITING = "waiting", Tone.WAIT
    """All slices are taken, and it waits for some."""
    CONNECTED = "connected", Tone.OK
    """JAX can use all slices."""
    DEGRADED = "degraded", Tone.WARN
    """Connected, but at least one of the session's slices is down."""
    INTERRUPTED = "interrupted", Tone.WARN
    """The connection to the proxy is lost, and retried; a relay beside the proxy keeps its arrays, and JAX waits."""
    LOST = "lost", Tone.FAIL
    """The proxy is gone with all arrays; a reconnect gets a new one."""
    SUSPENDING = "suspending", Tone.WAIT
    """Connected, while its arrays are saved so that the proxy can be removed."""
    SUSPENDED = "suspended", Tone.WAIT
    """The proxy was removed once its arrays were saved; a resume gets a new one and restores them."""
    RESUMING = "resuming", Tone.WAIT
    """There is a new proxy, and the saved arrays are not all back on it."""
    CLOSING = "closing", Tone.WAIT
    """Proxy, Lease and tunnel are being removed."""
    CLOSED = "closed"
    """Nothing of it is left."""
    FAILED = "failed", Tone.FAIL
    """It could not be connected."""

    @property
    def is_connected(self) -> bool:
        """Return whether there is a proxy with this session's arrays, even if JAX has to wait for it at the moment."""
        return self in _CONNECTED

    @property
    def is_over(self) -> bool:
        """Return whether it does not lead back; a session stays in CLOSING where something could not be removed."""
        return self in {SessionState.CLOSING, SessionState.CLOSED, SessionState.FAILED}


_CONNECTED = frozenset(
    {
        SessionState.CONNECTED,
        SessionState.DEGRADED,
        SessionState.INTERRUPTED,
        SessionState.SUSPENDING,
        SessionState.RESUMING,
    }
)
_WAITED = frozenset(
    {
        SessionState.CONNECTED,
        SessionState.RESUMING,
        SessionState.LOST,
        SessionState.SUSPENDED,
        SessionState.FAILED,
        SessionState.CLOSING,
    }
)
"""Next states after waiting; a session that was connected or suspended falls back when its new proxy fails."""

TRANSITIONS: Mapping[SessionState, frozenset[SessionState]] = {
    SessionState.STARTING: _WAITED | {SessionState.WAITING},
    SessionState.WAITING: _WAITED,
    **{
        each: (_CONNECTED - {each})
        | {SessionState.STARTING, SessionState.LOST, SessionState.SUSPENDED, SessionState.CLOSING}
        for each in _CONNECTED
    },
    # The last: its arrays were saved when the proxy was lost, before it was removed.
    SessionState.LOST: frozenset({SessionState.STARTING, SessionState.CLOSING, SessionState.SUSPENDED}),
    SessionState.SUSPENDED: frozenset({SessionState.STARTING, SessionState.CLOSING}),
    SessionState.CLOSING: frozenset({SessionState.CLOSED}),
    SessionState.FAILED: frozenset({SessionState.CLOSING}),
    SessionState.CLOSED: frozenset(),
}


class EventKind(Toned):
    """Kinds of events. The tones of `STATE` and `ELASTIC` depend on their data: see :attr:`Event.tone`."""

    STAGE = "stage"
    """Connecting entered its next stage; ``data["stage"]`` is a :class:`Stage`."""
    STATE = "state"
    """The session's state changed; ``data["state"]`` is a :class:`SessionState`."""
    SLICE_PLACED = "slice-placed", Tone.OK
    """The resource manager has given the session a slice."""
    SLICE_DOWN = "slice-down", Tone.FAIL
    """A slice cannot be used; arrays on it are lost."""
    SLICE_HEALED = "slice-healed", Tone.OK
    """It can be used again, without its former arrays."""
    PROXY_LOST = "proxy-lost", Tone.FAIL
    """The proxy is gone, and so is all data on its devices."""
    SUPERVISOR_LOST = "supervisor-lost", Tone.FAIL
    """The supervisor ended without cleaning up; only the kernel itself can detect it."""
    ARRAYS_LOST = "arrays-lost", Tone.WARN
    """So many arrays of the kernel were on a proxy that is gone, as it recorded: their ``count`` and ``bytes``."""
    UNUSED = "unused", Tone.WAIT
    """Nothing was computed since ``data["unused_since"]``; unless it is used, a session with a limit is suspended at
    ``data["suspends_at"]``, which is 0 without one. Both are 0 once that is no longer so."""
    NOT_SUSPENDED = "not-suspended", Tone.WARN
    """The kernel was asked to suspend, and could not, as it recorded; the session is as it was."""
    WARNING = "warning", Tone.WARN
    """Something that the user should know, and that stops nothing."""
    ELASTIC = "elastic"
    """Something happened to an elastic training run, which its kernel recorded; ``data["what"]`` names it, and
    ``data["tone"]`` is how it is drawn."""
    ELASTIC_RUN = "elastic-run"
    """An elastic training run as it is now. Only the newest is kept; it is for pages, and no entry of a timeline."""


SLICE_EVENTS = frozenset({EventKind.SLICE_PLACED, EventKind.SLICE_HEALED, EventKind.SLICE_DOWN})
LOSSES = frozenset({EventKind.PROXY_LOST, EventKind.SUPERVISOR_LOST})
"""Of all arrays of a session."""
_WITHOUT_SLICES = frozenset(
    {SessionState.STARTING, SessionState.LOST, SessionState.SUSPENDED, SessionState.CLOSED, SessionState.FAILED}
)
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
      message: One line for people.
      at: Time in seconds since the epoch.
      data: The same for programs; JSON values only (``slice``: JAX's index of it in this session, ``number``: the
        service's number of the same slice, ``stage``, ``state``, ``pod``, ...).
    """

    kind: EventKind
    message: str
    at: float = field(default_factory=time.time)
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tone(self) -> Tone:
        """Its colour and mark: the new state's for a state, and what the run has recorded for an elastic event."""
        tone = self.data.get("tone")
        match self.kind:
            case EventKind.STATE:
                return SessionState(self.data["state"]).tone
            case EventKind.ELASTIC:
                # A client has recorded it, which may be of another version.
                return Tone(tone) if tone in tuple(Tone) else Tone.NONE
            case kind:
                return kind.tone

    def to_json(self) -> dict[str, Any]:
        """Return this event as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Event:
        """Create an event from JSON values; the inverse of :meth:`to_json`.

        Raises:
          KeyError, TypeError, ValueError, OverflowError: `value` is not an event.
        """
        return cls(EventKind(value["kind"]), str(value["message"]), float(value["at"]), dict(value.get("data", {})))


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

    @property
    def numbers(self) -> str:
        """Its number for people, and the session's own where that is another: ``6 (your 0)``."""
        if self.number is None or self.number == self.index:
            return str(self.index)
        return f"{self.number} (your {self.index})"

    def __str__(self) -> str:
        return f"your slice {self.index}" if self.number is None else f"slice {self.numbers}"


@dataclass(frozen=True)
class SuspendedArrays:
    """The arrays of a session that was suspended, until its kernel has restored them.

    Attributes:
      count: Number of arrays.
      bytes: Theirs, without replicas.
      place: Where they are saved: ``gs://BUCKET/...``.
      at: When the session was suspended, in seconds since the epoch.
    """

    count: int
    bytes: int
    place: str
    at: float

    def __str__(self) -> str:
        return f"{self.amount} in {self.place}"

    @property
    def amount(self) -> str:
        """Number and size: ``4 arrays (1.2 GB)``."""
        return f"{text.count(self.count, 'array')} ({text.size(self.bytes)})"


@dataclass(frozen=True)
class Transfer:
    """Progress of arrays on their way to a bucket or back.

    Attributes:
      done: Bytes that are there.
      total: All bytes.
      left: About how many seconds the rest takes; None while that is unknown, or nothing is left.
    """

    done: int
    total: int
    left: float | None = None

    def __str__(self) -> str:
        left = "" if self.left is None else f"{text.about(self.left)} left"
        return f"{text.size(self.done)} of {text.size(self.total)}{left}"


def find_slice(slices: Iterable[SessionSlice], number: int) -> SessionSlice | None:
    """Return the slice of a session that `number` means: by the service's number, or else by the session's own."""
    held = tuple(slices)
    return next((each for each in held if each.number == number), None) or next(
        (each for each in held if each.index == number), None
    )


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
