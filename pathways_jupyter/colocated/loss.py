"""Wait for hosts in a way that Interrupt can end, and the loss of the slice or session that the work runs on.

JAX waits in C++, where Python's main thread cannot handle a signal. The session's supervisor detects a loss before JAX
gives up, and knows the reason. A call that ends this way reports the reason as its error. Code that shows the session's
events checks :func:`is_reported`, so that it is not shown twice.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pathways_jupyter.base import tasks
from pathways_jupyter.base.events import LOSSES, Event, EventKind, SessionSlice, SessionState
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.colocated.errors import CheckError, LostError
from pathways_jupyter.saved import on_devices
from pathways_jupyter.session.verdicts import SessionCommand

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session

Value = TypeVar("Value")
OnLost = Callable[[LostError], None]

PATIENCE_SECONDS = 5.0
"""Longest wait for hosts to stop a call after an interrupt."""

_REASON_SECONDS = 1.0
"""Longest wait of a failed call for the supervisor's reason; it has none if only a sidecar was lost."""
_LOST = {SessionState.LOST, SessionState.FAILED}
_ENDED = {SessionState.CLOSING, SessionState.CLOSED}
_RECONNECT = advice(
    "Arrays on TPUs and names on the hosts are gone. {reconnect} gets a new proxy with the same settings."
)
_RESUME = advice("{resume} brings its arrays back; names on the hosts are gone.")
_CONNECT = advice("Arrays on TPUs and names on the hosts are gone. {connect} starts another session.")


@dataclass(eq=False)
class _Call:
    slices: frozenset[int]
    on_lost: OnLost


# Guards `_calls` and `_reported`, which the callers' threads, one follower thread for each session, and the thread that
# shows notices use. Never held while a callback runs: a callback may wake a thread that needs the lock.
_lock = threading.Lock()
_calls: dict[int, list[_Call]] = {}
"""The running calls, by the id() of the session whose events are followed for them."""
_reported: deque[tuple[str, float]] = deque(maxlen=64)
"""Events that ended calls. Bounded, as only the latest may not have reached other listeners yet."""


def wait_for_hosts(
    slices: Collection[int],
    work: Callable[[], Value],
    stop: Callable[[], object] | None = None,
    interrupted: Callable[[Value | None], BaseException] = lambda result: KeyboardInterrupt(),
    seconds: float = math.inf,
) -> Value:
    """Return the result of `work`, as :func:`pathways_jupyter.base.tasks.abandonable` does.

    Args:
      slices: Those of the hosts that the work needs.

    Raises:
      LostError: The session or a slice was lost meanwhile.
      BaseException: As for :func:`pathways_jupyter.base.tasks.abandonable`.
    """
    explained = threading.Event()

    @contextlib.contextmanager
    def watch(fail: Callable[[BaseException], None]) -> Iterator[None]:
        def lost(error: LostError) -> None:
            fail(error)
            explained.set()

        # The thread of the work may stay blocked in JAX for minutes.
        with _watched(slices, lost) as is_watched:
            if not is_watched:
                explained.set()
            yield

    def run() -> Value:
        try:
            return work()
        except LostError:
            # JAX may fail first, but only the supervisor knows the reason: give its event time to arrive.
            explained.wait(_REASON_SECONDS)
            raise

    return tasks.abandonable(
        run,
        name=on_devices.CALL_THREAD,
        seconds=seconds,
        stop=stop,
        stop_seconds=PATIENCE_SECONDS,
        interrupted=interrupted,
        watch=watch,
    )


@contextlib.contextmanager
def _watched(slices: Collection[int], on_lost: OnLost) -> Iterator[bool]:
    """Call `on_lost`, from another thread, if this process's session or one of `slices` is lost inside the block.

    Yields whether there is a session to watch.
    """
    from pathways_jupyter.session.kernel.session import current

    session = current()
    if session is None:
        yield False
        return
    call = _Call(frozenset(slices), on_lost)
    with _lock:
        # Deciding and registering under one lock: of two calls that begin at once, exactly one starts the follower.
        # The thread keeps the session alive, so its id() is not reused while the entry exists.
        follow = id(session) not in _calls
        calls = _calls.setdefault(id(session), [])
        calls.append(call)
    if follow:
        # Taken before the thread starts, so that an event in between is not missed.
        since = session.event_count
        threading.Thread(target=_follow, args=(session, since), name="colocated-session", daemon=True).start()
    try:
        yield True
    finally:
        with _lock:
            calls.remove(call)


def require_session() -> None:
    """Fail if this process's session has lost its proxy.

    Raises:
      CheckError: The session was lost and has not been reconnected, or is suspended; the message gives the reason.
    """
    from pathways_jupyter.session.kernel.session import current

    session = current()
    # The events and not the state, which does not say why.
    for event in reversed(session.events() if session is not None else []):
        if event.kind in LOSSES or event.data.get("state") in _LOST:
            raise CheckError(f"The session is lost: {event.message}", hint=_RECONNECT)
        if session is not None and event.data.get("state") == SessionState.SUSPENDED:
            answer = session.verdict(SessionCommand.RUN)
            raise CheckError(answer.sentence, hint=answer.hint)
        if "state" in event.data:
            return


def is_waited_for() -> bool:
    """Return whether any call runs on hosts, on whatever thread."""
    with _lock:
        return any(_calls.values())


def is_reported(event: Event) -> bool:
    """Return whether a call that runs, or has just run, ends because of this event and reports it as its error."""
    with _lock:
        # Both, because this runs in another thread than `_follow`, which may see the event later or earlier: a call
        # that is still registered will report it, and one that has ended already is in `_reported`.
        running = any(_ending(event, call.slices) for calls in _calls.values() for call in calls)
        return running or (event.kind, event.at) in _reported


def _follow(session: Session, since: int) -> None:
    """End the calls that run when the session, or a slice of theirs, is lost; runs in a thread of its own."""
    for event in session.follow(since):
        with _lock:
            ending = [(call, error) for call in _calls[id(session)] if (error := _ending(event, call.slices))]
            if ending:
                _reported.append((event.kind, event.at))
        for call, error in ending:
            call.on_lost(error)
    with _lock:
        left = _calls.pop(id(session), [])
    # The events end with the session, so whatever still runs ends too.
    for call in left:
        call.on_lost(LostError("The call ended because the session ended.", hint=_CONNECT))


def _ending(event: Event, slices: frozenset[int]) -> LostError | None:
    """Return the error that ends a call on these slices at this event; None if the call can continue."""
    state = event.data.get("state")
    if event.kind is EventKind.SLICE_DOWN and event.data["slice"] in slices:
        lost = SessionSlice(event.data.get("number"), event.data["slice"], up=False)
        return LostError(
            f"The call ended because {lost} went down.",
            hint="Its arrays and the names on its hosts are gone. Other slices keep working; a new worker restores it.",
        )
    if event.kind in LOSSES or state in _LOST:
        return LostError(f"The call ended because the session was lost: {event.message}", hint=_RECONNECT)
    if state == SessionState.SUSPENDED:
        return LostError("The call ended because the session was suspended.", hint=_RESUME)
    if state in _ENDED:
        return LostError("The call ended because the session was ended from outside.", hint=_CONNECT)
    if state == SessionState.STARTING:
        return LostError(
            "The call ended because the session was reconnected from outside.",
            hint="Arrays on TPUs and names on the hosts are gone: run the cells that created them again.",
        )
    return None
