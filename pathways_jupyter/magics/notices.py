"""Notices about the session that appear while the user does something else.

A slice may go down while a cell computes, or the proxy may be lost while nothing runs. A thread waits for such events.
In a notebook it shows them below the cell that runs, or ran last: one output for all events during a cell, updated in
place, so that a slice that goes up and down all night leaves one line. A recovery, or another proxy, is drawn where the
loss was shown. In a terminal the output would end up in the line that is being typed, so notices are kept until the
next command has run.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from pathways_jupyter.base.events import SLICE_EVENTS, Event, EventKind, SessionSlice, SessionState
from pathways_jupyter.base.text import capitalized, count
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.magics.screen import Screen
from pathways_jupyter.render import text
from pathways_jupyter.render.events import News, notice
from pathways_jupyter.render.view import View
from pathways_jupyter.widgets.live import CellOutput

ADVICE: Mapping[EventKind, str] = {
    EventKind.SLICE_DOWN: "Arrays on it are lost (DATA_LOSS). Other slices keep working; a new worker restores it.",
    EventKind.SLICE_HEALED: "New arrays can be put on it; its earlier arrays remain lost.",
    EventKind.PROXY_LOST: "All arrays on TPUs are lost. %pathways reconnect connects again, with the same settings.",
    EventKind.SUPERVISOR_LOST: "%pathways reconnect, or resume if it was suspended, starts a new one.",
    EventKind.UNUSED: "",
    EventKind.WARNING: "",
}
"""The events that cause a notice, with advice for each."""
_ENDS = {EventKind.STATE, EventKind.SLICE_HEALED, EventKind.UNUSED}
_LOSSES = {EventKind.SLICE_DOWN, EventKind.PROXY_LOST, EventKind.SUPERVISOR_LOST}
_CONNECTION = "connection"
_USE = "use"
_INTERRUPTED = "Cells wait, and continue once the connection is back. Interrupt stops a cell."


@dataclass
class _Notice:
    """The events during one cell, by what they are about; see :func:`_subject`.

    Attributes:
      after: The state that ended what was lost before: connected to another proxy, or closed.
    """

    cell: int
    output: CellOutput | None
    events: dict[Hashable, list[Event]] = field(default_factory=dict)
    after: Event | None = None

    def view(self) -> View:
        return notice([_summary(events, self.after) for events in self.events.values()])

    def draw(self) -> None:
        if self.output is not None:
            self.output.draw(self.view())


class Notices:
    """Show the events of one session as they arrive.

    Args:
      events: Blocks until something happens; ends with the session.
      screen: Where to show them.
      changed: Called after each event, to redraw what it changed.
      cell: Returns the number of the cell that runs, or ran last.
    """

    def __init__(
        self, events: Iterable[Event], screen: Screen, changed: Callable[[], None], cell: Callable[[], int]
    ) -> None:
        self._events = events
        self._screen = screen
        self._changed = changed
        self._cell = cell
        self._latest: _Notice | None = None
        # The notice of each loss or interruption, by its subject, until that is over.
        self._open: dict[Hashable, _Notice] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._wait, name="pathways-notices", daemon=True)
        self._thread.start()

    def close(self, connected: Event | None = None) -> None:
        """Show nothing from now on, but that what was lost has ended with the event `connected`."""
        self._closed = True
        if connected is not None:
            with self._lock:
                self._end_losses(connected)

    def flush(self) -> None:
        """Show the notices that were kept back; only terminals keep any."""
        # Called on the user's thread while `_wait` may add an event: take the notice under the lock, print it outside.
        with self._lock:
            pending = self._latest if not self._screen.in_place else None
            if pending is not None:
                self._latest = None
                self._open.clear()
        if pending is not None:
            self._screen.line(pending.view().text)

    def _wait(self) -> None:
        # Iterating blocks until the next event, so `close` cannot interrupt it: a closed object's thread ends at the
        # next event or with the session. As a daemon it does not keep the kernel from exiting.
        for event in self._events:
            if self._closed:
                return
            if self._is_news(event):
                with self._lock:
                    self._add(event)
            has_another_proxy = "generation" in event.data
            if has_another_proxy or event.data.get("state") == SessionState.CLOSED:
                with self._lock:
                    self._end_losses(event)
            # Outside the lock: the callback draws, and a slow front end must not block `flush` on the user's thread.
            self._changed()

    def _is_news(self, event: Event) -> bool:
        """Return whether `event` has a notice: there is advice on it, or the connection is interrupted or back."""
        if event.kind is EventKind.STATE:
            return _is_interrupted(event) or _CONNECTION in self._open
        return event.kind in ADVICE and not _is_reported_by_a_call(event)

    def _add(self, event: Event) -> None:
        subject = _subject(event)
        # What is over is drawn where it began. If a call's error reported the loss, the recovery gets its own notice.
        begun = self._open.get(subject) if event.kind in _ENDS else None
        notice = begun or self._current()
        notice.events.setdefault(subject, []).append(event)
        if event.kind in _LOSSES or _is_interrupted(event) or event.data.get("unused_since"):
            self._open[subject] = notice
        elif event.kind in {EventKind.STATE, EventKind.UNUSED}:
            self._open.pop(subject, None)
        notice.draw()

    def _end_losses(self, event: Event) -> None:
        """Draw the notices of lost slices and of a lost proxy again: `event` is another proxy, or the session's end."""
        for subject in self._open.keys() - {_CONNECTION, _USE}:
            notice = self._open.pop(subject)
            notice.after = event
            notice.draw()

    def _current(self) -> _Notice:
        """Return the notice of the cell that runs, or ran last."""
        cell = self._cell()
        if self._latest is None or (self._latest.cell != cell and self._screen.in_place):
            self._latest = _Notice(cell, self._screen.new_output() if self._screen.in_place else None)
        return self._latest


def _subject(event: Event) -> Hashable:
    """Return what `event` is about: the connection, the proxy, a slice by JAX's index, or else something of its own."""
    if event.kind is EventKind.STATE:
        return _CONNECTION
    if event.kind is EventKind.UNUSED:
        return _USE
    if event.kind in SLICE_EVENTS:
        return int(event.data["slice"])
    return "proxy" if event.kind in _LOSSES else id(event)


def _summary(events: list[Event], after: Event | None) -> News:
    """One line that sums up the events about one subject, with advice until it is over."""
    last, losses = events[-1], [event for event in events if event.kind is EventKind.SLICE_DOWN]
    if losses and last.kind is EventKind.SLICE_HEALED:
        name = str(SessionSlice(last.data.get("number"), last.data["slice"], up=True))
        often = f"down {count(len(losses), 'time')}, the last time" if len(losses) > 1 else "down"
        when = f"from {text.moment(losses[-1].at)} to {text.later(last.at, losses[-1].at)}"
        return News(last.tone, f"{capitalized(name)} was {often} {when}.", ADVICE[last.kind])
    before = f" It had been down {count(len(losses) - 1, 'time')} before." if len(losses) > 1 else ""
    said = f"{text.moment(last.at)}  {last.message}{before}"
    if last.kind not in _LOSSES or after is None or after.at < last.at:
        return News(last.tone, said, _INTERRUPTED if _is_interrupted(last) else ADVICE.get(last.kind, ""))
    if after.data["state"] == SessionState.CLOSED:
        return News(Tone.NONE, f"{said} The session has ended.")
    since = f"A new proxy is connected since {text.later(after.at, last.at)}."
    are_saved = after.data["state"] == SessionState.RESUMING
    return News(after.tone, f"{said} {since}", "" if are_saved else "Arrays on the previous one remain lost.")


def _is_interrupted(event: Event) -> bool:
    return event.kind is EventKind.STATE and event.data.get("state") == SessionState.INTERRUPTED


def _is_reported_by_a_call(event: Event) -> bool:
    """Return whether a call on the hosts ends because of this event, so that its error reports it."""
    loss = sys.modules.get("pathways_jupyter.colocated.loss")
    return loss is not None and loss.is_reported(event)
