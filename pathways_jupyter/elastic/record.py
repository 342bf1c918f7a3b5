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

from pathways_jupyter.elastic.goodput import Goodput

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


@dataclass(frozen=True)
class StepNote:
    """A completed step.

    Attributes:
      at: When it was known to be complete, in seconds since the epoch.
      slices: The number of slices that it ran on.
    """

    step: int
    at: float
    slices: int
    metrics: Mapping[str, float]


class Record:
    """The events and metrics of one run, in order; may be used from any thread.

    Attributes:
      goodput: Where the run's time went.
      listeners: Called with each event.
    """

    def __init__(self) -> None:
        self.goodput = Goodput()
        self._events: list[ElasticEvent] = []
        self._steps: dict[int, StepNote] = {}
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
        _notify(self, important=True)
        return event

    def step(self, step: int, metrics: Mapping[str, float], *, slices: int, losses: int) -> None:
        """Note that `step` is complete; a step that is repeated after a loss replaces its earlier note."""
        with self._lock:
            self._steps[step] = StepNote(step, time.time(), slices, dict(metrics))
        shown = " ".join(f"{name}={value:.6g}" for name, value in metrics.items())
        logger.info(
            "step=%d elastic_manager.elastic_down_event_count=%d elastic_manager.good_slice_count=%d %s",
            *(step, losses, slices, shown),
        )
        _notify(self, important=False)

    def begin(self) -> None:
        """Make this the process's latest run, from now on."""
        global _latest
        _latest = self
        self.goodput = Goodput()

    def end(self) -> None:
        """Stop the clock."""
        self.goodput.end()
        _notify(self, important=True)

    def count(self, kind: Kind) -> int:
        """Return how many events of `kind` there were."""
        with self._lock:
            return sum(each.kind is kind for each in self._events)

    @property
    def events(self) -> list[ElasticEvent]:
        """The events so far."""
        with self._lock:
            return list(self._events)

    @property
    def metrics(self) -> dict[int, Mapping[str, float]]:
        """The metrics of every completed step."""
        return {each.step: each.metrics for each in self.steps}

    @property
    def steps(self) -> list[StepNote]:
        """Every completed step, in the order of their numbers."""
        with self._lock:
            return [note for _, note in sorted(self._steps.items())]

    def to_json(self) -> str:
        """Return everything as JSON: ``events``, ``steps`` (time, slices, metrics) and ``goodput`` (seconds)."""
        goodput = {name: round(seconds, 3) for name, seconds in self.goodput.seconds().items()}
        events, steps = [asdict(each) for each in self.events], [asdict(each) for each in self.steps]
        return json.dumps({"events": events, "steps": steps, "goodput": goodput})

    def to_trace(self) -> str:
        """Return the events in the Trace Event format, which Perfetto (ui.perfetto.dev) opens."""
        events, steps = self.events, self.steps
        begun = min([*(each.at for each in events), *(each.at for each in steps)], default=0.0)

        def microseconds(at: float) -> int:
            return round((at - begun) * 1e6)

        marks: list[dict[str, Any]] = [
            {
                "name": each.kind,
                "ph": "i",
                "s": "g",
                "pid": 1,
                "tid": 1,
                "ts": microseconds(each.at),
                "args": {"message": each.message, **each.data},
            }
            for each in events
        ]
        counts: list[dict[str, Any]] = [
            {"name": "slices", "ph": "C", "pid": 1, "ts": microseconds(each.at), "args": {"slices": each.slices}}
            for each in steps
        ]
        return json.dumps({"traceEvents": marks + counts})


Observer = Callable[[Record, bool], None]
"""Called after each change of a run with its record, and whether more than a step's completion has changed."""

_latest: Record | None = None
_observer: Observer | None = None


def latest() -> Record | None:
    """Return the record of the run that began last in this process; None if there was none."""
    return _latest


def observe(observer: Observer) -> None:
    """Call `observer` after each change of any run, from now on and instead of the one before."""
    global _observer
    _observer = observer


def _notify(record: Record, *, important: bool) -> None:
    if _observer is None:
        return
    try:
        _observer(record, important)
    except Exception:
        # The observer draws; its error must not stop the training.
        logger.exception("the observer of elastic runs")
