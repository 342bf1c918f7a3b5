"""The picture of an elastic training run, live while the run goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pathways_jupyter.elastic import record as records
from pathways_jupyter.elastic.record import Record
from pathways_jupyter.render import elastic as still
from pathways_jupyter.widgets.live import Live

_REDRAW_SECONDS = 0.5
"""Shortest time between two drawings: each is sent to the browser."""


class ElasticPanel(Live):
    """The run that goes on; if none does, the latest one until the next begins. A run that was followed stays, unless
    it was a short call after a longer training.

    Args:
      metrics: The metrics to draw; the first one when empty.
    """

    def __init__(self, shell: Any, metrics: Sequence[str] = ()) -> None:
        self._drawn_at = 0.0
        self._metrics = tuple(metrics)
        shown = records.shown()
        self._followed = shown if shown is not None and shown.ended is None else None
        super().__init__(shell, still.view(shown, self._metrics))

    def _begin(self) -> None:
        records.observe(self._changed)

    def _changed(self, record: Record, important: bool) -> None:
        if self._followed is None:
            self._followed = record
        elif record is not self._followed:
            # Its picture stays in the notebook: another cell's run does not take its place.
            return
        if record.ended is not None and (before := records.shown()) is not None and before is not record:
            # That was a short call: the training before it is shown again.
            record, self._followed = before, None
        now = time.monotonic()
        if important or now - self._drawn_at >= _REDRAW_SECONDS:
            self._drawn_at = now
            self._redraw(still.view(record, self._metrics))
