"""Send a run's events and its present state to the session's supervisor, without ever holding a training step up.

A thread of its own sends them through the session's control socket: a supervisor that is stopped or gone costs the run
nothing. What waits is bounded; the oldest events are dropped first.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import PathwaysError, SessionError
from pathways_jupyter.base.events import Event
from pathways_jupyter.session import recording

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session

_INTERVAL_SECONDS = 1.0
"""Shortest time between two states that are sent because of a completed step."""
_AGAIN_SECONDS = 2.0
_LAST_ATTEMPTS = 3
"""Attempts to send what is left at the end of a run: a supervisor that is starting again takes a few seconds."""
_CLOSE_SECONDS = 1.0
_UNSENT = 256

logger = logging.getLogger(__name__)


class Publisher:
    """Sends what happens to one run to `session`.

    Args:
      state: Returns the run as it is now; called on the publisher's thread.
    """

    def __init__(self, session: Session, state: Callable[[], Event]) -> None:
        self._session = session
        self._state = state
        self._events: deque[Event] = deque(maxlen=_UNSENT)
        self._changed = interrupts.Changes()
        self._urgent = True
        self._stale = True
        self._closed = False
        # A daemon, so that a supervisor that does not answer cannot keep the process from exiting.
        self._ended = interrupts.InterruptibleEvent()
        threading.Thread(target=self._run, name="elastic-publish", daemon=True).start()

    def changed(self, event: Event | None = None) -> None:
        """Send the run's state soon, and `event` at once; returns immediately."""
        with self._changed.lock:
            self._stale = True
            if event is not None:
                self._events.append(event)
                self._urgent = True
                self._changed.notify_all()

    def close(self) -> None:
        """Send what is left; waits for that for a second at most, and the thread tries on if that fails."""
        with self._changed.lock:
            self._closed = self._urgent = True
            self._changed.notify_all()
        self._ended.wait(_CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            self._send_all()
        finally:
            self._ended.set()

    def _send_all(self) -> None:
        failed, closed, attempts = False, False, _LAST_ATTEMPTS
        while True:
            # After a failure a pause, also if more has happened: the supervisor may be starting again.
            if failed and closed:
                time.sleep(_AGAIN_SECONDS)
            elif failed:
                self._changed.wait_for(lambda: self._closed, timeout=_AGAIN_SECONDS)
            else:
                self._changed.wait_for(lambda: self._closed or self._urgent, timeout=_INTERVAL_SECONDS)
            with self._changed.lock:
                events = list(itertools.islice(self._events, recording.MOST_EVENTS - 1))
                stale, closed, self._stale = self._stale, self._closed, False
                self._urgent = len(self._events) > len(events)
            failed = (stale or bool(events)) and not self._send(events)
            attempts -= closed and failed
            if closed and not (attempts and (failed or self._events)):
                return

    def _send(self, events: list[Event]) -> bool:
        """Send `events` and the state; return whether they need not be sent again."""
        try:
            recording.record(self._session.record, [*events, self._state()])
        except SessionError as error:
            logger.info("the session does not take events: %s", error)
            # The state counts as unsent again.
            self.changed()
            return False
        except (PathwaysError, TypeError, ValueError) as error:
            # A refusal stays one: trying again would hold up what comes after.
            logger.warning("events of the run could not be recorded: %s", error)
        with self._changed.lock:
            for event in events:
                # Those that were dropped meanwhile because too many waited are gone already.
                if self._events and self._events[0] is event:
                    self._events.popleft()
        return True
