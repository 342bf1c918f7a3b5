"""Tells what happens to the session while its owner does something else.

A slice goes down while a cell computes, or the proxy is lost while nobody looks. A thread waits for such events; in a
notebook it shows them at once, below the cell that runs or ran last, and draws the connection's card again. In a
terminal it would write into the line that is being typed, so there they are kept until the next command has run.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping

from pathways_jupyter.events import Event, EventKind
from pathways_jupyter.magics.screen import Screen

ADVICE: Mapping[EventKind, str] = {
    EventKind.SLICE_DOWN: "Arrays on it are lost (DATA_LOSS); the other slices go on. A new worker heals it.",
    EventKind.SLICE_HEALED: "New arrays can be put on it; those from before stay lost.",
    EventKind.PROXY_LOST: "All arrays on TPUs are lost. %pathways reconnect gets a new proxy with the same settings.",
    EventKind.SUPERVISOR_LOST: "%pathways reconnect starts a new one with the same settings.",
    EventKind.WARNING: "",
}
"""The events that are worth a notice, and what to do about each."""


class Notices:
    """Shows the events of one session as they come.

    Args:
      events: Blocks until something happens; ends with the session.
      screen: Where to show them.
      changed: Called after each event, to draw again what it changed.
    """

    def __init__(self, events: Iterable[Event], screen: Screen, changed: Callable[[], None]) -> None:
        self._events = events
        self._screen = screen
        self._changed = changed
        self._kept: list[Event] = []
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._wait, name="pathways-notices", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Shows nothing from now on; somebody else does."""
        self._closed = True

    def flush(self) -> None:
        """Shows what was kept."""
        with self._lock:
            kept, self._kept = self._kept, []
        for event in kept:
            self._show(event)

    def _wait(self) -> None:
        for event in self._events:
            if self._closed:
                return
            if event.kind in ADVICE and not _told_by_a_call(event):
                if self._screen.in_place:
                    self._show(event)
                else:
                    with self._lock:
                        self._kept.append(event)
            self._changed()

    def _show(self, event: Event) -> None:
        from pathways_jupyter.render import events

        self._screen.show(events.notice(event, ADVICE.get(event.kind, "")))


def _told_by_a_call(event: Event) -> bool:
    """Whether a cell on the hosts ends with this event: its error says the same."""
    loss = sys.modules.get("pathways_jupyter.colocated.loss")
    return loss is not None and loss.tells(event)
