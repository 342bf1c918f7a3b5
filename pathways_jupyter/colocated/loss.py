"""Ends a call when what it runs on goes: the session's supervisor hears of it before JAX gives up, and knows why.

A call that ends so tells the reason itself, as its error. Whoever shows the session's events asks :func:`tells`, so
that a reader is not told twice.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pathways_jupyter.colocated.errors import CheckError, LostError
from pathways_jupyter.events import Event, EventKind, SessionSlice, SessionState

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session

Tell = Callable[[LostError], None]

_LOSSES = {EventKind.PROXY_LOST, EventKind.SUPERVISOR_LOST}
_LOST = {SessionState.LOST, SessionState.FAILED}
_ENDED = {SessionState.CLOSING, SessionState.CLOSED}
_RECONNECT = (
    "Arrays on TPUs and names on the hosts are gone. %pathways reconnect gets a new proxy with the same settings."
)
_CONNECT = "Arrays on TPUs and names on the hosts are gone. %pathways connect begins another session."


class _Call:
    def __init__(self, slices: frozenset[int], tell: Tell) -> None:
        self.slices = slices
        self.tell = tell


_lock = threading.Lock()
_calls: dict[int, list[_Call]] = {}
"""The calls that run, by the identity of the session that is followed for them."""
_told: deque[tuple[str, float]] = deque(maxlen=64)
"""Events that ended calls."""


@contextlib.contextmanager
def told(slices: Iterable[int], tell: Tell) -> Iterator[bool]:
    """Calls `tell`, from another thread, if this process's session or one of these slices is lost inside the block.

    Yields whether there is a session that could tell.
    """
    from pathways_jupyter.session.kernel.session import current

    session = current()
    if session is None:
        yield False
        return
    call = _Call(frozenset(slices), tell)
    with _lock:
        follow = id(session) not in _calls
        calls = _calls.setdefault(id(session), [])
        calls.append(call)
    if follow:
        since = session.event_count
        threading.Thread(target=_follow, args=(session, since), name="colocated-session", daemon=True).start()
    try:
        yield True
    finally:
        with _lock:
            calls.remove(call)


def require_session() -> None:
    """Fails when this process's session has no proxy any more, and says why.

    Raises:
      CheckError: It was lost, and nobody has reconnected it.
    """
    from pathways_jupyter.session.kernel.session import current

    session = current()
    # Not its state alone: that a proxy is lost is told a moment before the state changes.
    for event in reversed(session.events() if session is not None else []):
        if event.kind in _LOSSES or event.data.get("state") in _LOST:
            raise CheckError(f"The session is lost: {event.message}", hint=_RECONNECT)
        if "state" in event.data:
            return


def tells(event: Event) -> bool:
    """Whether a call that runs, or has just run, ends with this event and tells it itself."""
    with _lock:
        running = any(_ending(event, call.slices) for calls in _calls.values() for call in calls)
        return running or _key(event) in _told


def _follow(session: Session, since: int) -> None:
    for event in session.follow(since):
        _end(session, event)
    with _lock:
        left = _calls.pop(id(session), [])
    for call in left:
        call.tell(LostError("The call ended because the session did.", hint=_CONNECT))


def _end(session: Session, event: Event) -> None:
    with _lock:
        ending = [(call, error) for call in _calls[id(session)] if (error := _ending(event, call.slices))]
        if ending:
            _told.append(_key(event))
    for call, error in ending:
        call.tell(error)


def _ending(event: Event, slices: frozenset[int]) -> LostError | None:
    """What a call on these slices ends with when this happens; None when it goes on."""
    state = event.data.get("state")
    if event.kind is EventKind.SLICE_DOWN and event.data["slice"] in slices:
        lost = SessionSlice(event.data.get("number"), event.data["slice"], up=False)
        return LostError(
            f"The call ended because {lost} went down.",
            hint="Its arrays and its hosts' names are gone; the other slices go on. A new worker heals it.",
        )
    if event.kind in _LOSSES or state in _LOST:
        return LostError(f"The call ended because the session was lost: {event.message}", hint=_RECONNECT)
    if state in _ENDED:
        return LostError("The call ended because the session was ended from outside.", hint=_CONNECT)
    if state == SessionState.STARTING:
        return LostError(
            "The call ended because the session was reconnected from outside.",
            hint="Arrays on TPUs and names on the hosts are gone: run the cells that made them again.",
        )
    return None


def _key(event: Event) -> tuple[str, float]:
    return event.kind, event.at
