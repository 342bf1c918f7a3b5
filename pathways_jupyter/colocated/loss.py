"""Ends a call when its session does: the session's supervisor hears of a lost proxy before JAX gives up on it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pathways_jupyter.events import SessionState

if TYPE_CHECKING:
    from pathways_jupyter.session.session import Session

_OVER = {SessionState.LOST, SessionState.CLOSING, SessionState.CLOSED, SessionState.FAILED}

Tell = Callable[[str], None]

_lock = threading.Lock()
_waiting: dict[int, list[Tell]] = {}
"""Who waits, by the identity of the session that is followed."""


@contextlib.contextmanager
def told(tell: Tell) -> Iterator[None]:
    """Calls `tell` with a reason, from another thread, if this process's session is lost inside the ``with`` block."""
    from pathways_jupyter.session.session import current

    session = current()
    if session is None:
        yield
        return
    with _lock:
        follow = id(session) not in _waiting
        waiting = _waiting.setdefault(id(session), [])
        waiting.append(tell)
    if follow:
        threading.Thread(target=_follow, args=(session, waiting), name="colocated-session", daemon=True).start()
    try:
        yield
    finally:
        with _lock:
            waiting.remove(tell)


def _follow(session: Session, waiting: list[Tell]) -> None:
    for event in session.follow(session.event_count):
        if event.data.get("state") in _OVER:
            _tell(waiting, event.message)
    _tell(waiting, "the session ended")
    with _lock:
        _waiting.pop(id(session), None)


def _tell(waiting: list[Tell], reason: str) -> None:
    with _lock:
        everyone = list(waiting)
    for tell in everyone:
        tell(reason)
