"""What happened during an elastic run: events with their times, for the log, the panel and traces.

The log has a line per step in the form of pathwaysutils' elastic examples
(``step=12 elastic_manager.elastic_down_event_count=1 elastic_manager.good_slice_count=2``), which their scripts read.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

logger = logging.getLogger("pathways_jupyter.elastic")


class Kind(StrEnum):
    """Kinds of elastic events."""

    SLICE_DOWN = "slice-down"
    SLICE_UP = "slice-up"
    DETECTED = "detected"
    """The loop noticed that slices it uses are gone."""
    RESTORED = "restored"
    """A snapshot was put on the remaining slices."""
    RESUMED = "resumed"
    """The first step after a change of slices is complete."""
    GROWN = "grown"
    WAITING = "waiting"
    """Fewer slices than allowed; training is paused."""
    RECONNECTED = "reconnected"
    SNAPSHOT = "snapshot"
    RETRY = "retry"


@dataclass(frozen=True)
class ElasticEvent:
    """One event.

    Attributes:
      message: One line for people.
      at: Time in seconds since the epoch.
      step: The step that was next at that time; None where that is not known.
      slices: The slices in use after it.
    """

    kind: Kind
    message: str
    at: float
    step: int | None = None
    slices: tuple[int, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


class Record:
    """The events and metrics of one run, in order; may be used from any thread."""

    def __init__(self) -> None:
        self._events: list[ElasticEvent] = []
        self._metrics: dict[int, tuple[float, int, Mapping[str, float]]] = {}
        self._lock = threading.Lock()
        self.listeners: list[Callable[[ElasticEvent], None]] = []

    def add(
        self, kind: Kind, message: str, *, step: int | None = None, slices: tuple[int, ...] = (), **data: Any
    ) -> ElasticEvent:
        """Append an event and pass it to the listeners."""
        event = ElasticEvent(kind, message, time.time(), step, slices, data)
        with self._lock:
            self._events.append(event)
        logger.info("%s", message)
        for listener in tuple(self.listeners):
            try:
                listener(event)
            except Exception:
                # A listener draws or forwards; its error must not stop the training.
                logger.exception("a listener of elastic events")
        return event

    def step(self, step: int, metrics: Mapping[str, float], *, slices: int, losses: int) -> None:
        """Note that `step` is complete; a step that is repeated after a loss replaces its earlier note."""
        with self._lock:
            self._metrics[step] = (time.time(), slices, dict(metrics))
        shown = " ".join(f"{name}={value:.6g}" for name, value in metrics.items())
        logger.info(
            "step=%d elastic_manager.elastic_down_event_count=%d elastic_manager.good_slice_count=%d %s",
            *(step, losses, slices, shown),
        )

    @property
    def events(self) -> list[ElasticEvent]:
        """The events so far."""
        with self._lock:
            return list(self._events)

    @property
    def metrics(self) -> dict[int, Mapping[str, float]]:
        """The metrics of every completed step."""
        with self._lock:
            return {step: values for step, (_, _, values) in sorted(self._metrics.items())}

    def to_json(self) -> str:
        """Return everything as JSON: ``events``, and ``steps`` with time, slices and metrics."""
        with self._lock:
            steps = [
                {"step": step, "at": at, "slices": slices, **values}
                for step, (at, slices, values) in sorted(self._metrics.items())
            ]
            return json.dumps({"events": [asdict(each) for each in self._events], "steps": steps})

    def to_trace(self) -> str:
        """Return the events in the Trace Event format, which Perfetto (ui.perfetto.dev) opens."""
        with self._lock:
            begun = min([each.at for each in self._events] + [at for at, _, _ in self._metrics.values()], default=0.0)
            marks: list[dict[str, Any]] = [
                {
                    "name": each.kind,
                    "ph": "i",
                    "s": "g",
                    "pid": 1,
                    "tid": 1,
                    "ts": round((each.at - begun) * 1e6),
                    "args": {"message": each.message, **each.data},
                }
                for each in self._events
            ]
            counts: list[dict[str, Any]] = [
                {"name": "slices", "ph": "C", "pid": 1, "ts": round((at - begun) * 1e6), "args": {"slices": slices}}
                for _, (at, slices, _) in sorted(self._metrics.items())
            ]
        return json.dumps({"traceEvents": marks + counts})
