"""Live pictures of what this kernel receives: the events of its session, and an elastic training run."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pathways_jupyter.elastic.record import Record
from pathways_jupyter.elastic.run_registry import RUNS
from pathways_jupyter.render import elastic, events
from pathways_jupyter.widgets.live import REDRAW_SECONDS, Live

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session

_SHOWN = 200
"""Newest events that a timeline shows."""


class Timeline(Live):
    """Past events of `session`, and new ones while this is shown, until the session ends."""

    def __init__(self, shell: Any, session: Session) -> None:
        self._events = session.events()
        self._session = session
        self._since = session.event_count
        super().__init__(shell, events.view(self._events[-_SHOWN:]))

    def _begin(self) -> None:
        # A daemon thread, so that a kernel can exit without waiting for it.
        threading.Thread(target=self._follow, name="pathways-timeline", daemon=True).start()

    def _follow(self) -> None:
        for event in self._session.follow(self._since):
            self._events.append(event)
            self._redraw(events.view(self._events[-_SHOWN:]))
        self._redraw(events.view(self._events[-_SHOWN:], note="The session has ended."), last=True)


class ElasticPanel(Live):
    """The run that goes on; if none does, the latest one until the next begins. A run that was followed stays, unless
    it was a short call after a longer training.

    Args:
      metrics: The metrics to draw; the first one when empty.
    """

    def __init__(self, shell: Any, metrics: Sequence[str] = ()) -> None:
        self._drawn_at = 0.0
        self._metrics = tuple(metrics)
        shown = RUNS.shown()
        self._followed = shown if shown is not None and shown.ended is None else None
        super().__init__(shell, elastic.view(shown, self._metrics))

    def _begin(self) -> None:
        RUNS.observe(self._changed)

    def _changed(self, record: Record, important: bool) -> None:
        if self._followed is None:
            self._followed = record
        elif record is not self._followed:
            # Its picture stays in the notebook: another cell's run does not take its place.
            return
        if record.ended is not None and (before := RUNS.shown()) is not None and before is not record:
            # That was a short call: the training before it is shown again.
            record, self._followed = before, None
        now = time.monotonic()
        if important or now - self._drawn_at >= REDRAW_SECONDS:
            self._drawn_at = now
            self._redraw(elastic.view(record, self._metrics))
