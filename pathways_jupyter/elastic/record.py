"""Events of an elastic run with their times, for the log, the panel and traces.

The log has a line per step in the form of pathwaysutils' elastic examples
(``step=12 elastic_manager.elastic_down_event_count=1 elastic_manager.good_slice_count=2``), which their scripts read.

There is one writer, the training's thread; the panel, the session's log and exports read beside it.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.base.text import count
from pathways_jupyter.elastic.event_kinds import PHASES, Phase
from pathways_jupyter.elastic.event_kinds import Kind as Kind
from pathways_jupyter.elastic.goodput import Goodput
from pathways_jupyter.elastic.publish import Publisher

if TYPE_CHECKING:
    from pathways_jupyter.session.kernel.session import Session

logger = logging.getLogger("pathways_jupyter.elastic")


_SLICE_CHANGES = 1000
"""Changes of the number of slices that are kept."""
_LOGGED_BEFORE = frozenset({Kind.SLICE_DOWN, Kind.SLICE_UP})
"""Events that :class:`~pathways_jupyter.elastic.health.Health` has logged."""
_CURVE_POINTS = 400
"""Points of a curve; more cannot be seen at the width of a notebook."""
_SENT_CHANGES, _SENT_POINTS, _SENT_METRICS, _NAME_CHARACTERS = 100, 60, 8, 40
"""Bounds of a run's entry in the session's log: enough for a small picture."""
_RUNS = 20
"""Ended runs of this process that are listed."""
_SHORT = 10
"""With so many times fewer steps than the run in the panel, a run was a short call, which does not replace it."""


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
      id: Identifies the run in its session.
      name: The name of the training function; empty if that is not known.
      goodput: Where the run's time went.
      phase: What the run does.
      begun: When it began, in seconds since the epoch.
      ended: When it ended; None while it goes on.
      total_steps: The steps that it is to do; None if that is not known.
      total_slices: The slices that it may use; 0 if that is not known.
      latest: The step that was completed last.
      newest: The newest value of each metric.
    """

    def __init__(self) -> None:
        self.id = secrets.token_hex(4)
        self.name = ""
        self.goodput = Goodput()
        self._events: list[ElasticEvent] = []
        self._steps: dict[int, StepNote] = {}
        self._lock = threading.Lock()
        self.phase = Phase.TRAINING
        self.begun = time.time()
        self.ended: float | None = None
        self.total_steps: int | None = None
        self.total_slices = 0
        self.newest: dict[str, float] = {}
        self._slices: deque[tuple[float, int]] = deque(maxlen=_SLICE_CHANGES)
        self.latest: StepNote | None = None
        self._publisher: Publisher | None = None

    def add(
        self, kind: Kind, message: str, *, step: int | None = None, slices: tuple[int, ...] = (), **data: Any
    ) -> None:
        """Append an event; `step` is the next one if left out."""
        event = ElasticEvent(kind, message, time.time(), self.done or None if step is None else step, slices, data)
        with self._lock:
            self._events.append(event)
            self.phase = PHASES.get(kind, self.phase)
            if slices or kind is Kind.DETECTED:
                self._use(len(slices), event.at)
        if kind not in _LOGGED_BEFORE:
            # Python shows a warning also where no log has been set up: in a cell without the panel, a run that waits
            # would stand still without a word.
            logger.log(logging.WARNING if kind is Kind.WAITING else logging.INFO, "%s", message)
        self._notify(event)

    def slice_changed(self, index: int, up: bool, message: str) -> None:
        """Add the event that slice `index` went down or came back; a listener for :class:`Health`."""
        self.add(Kind.SLICE_UP if up else Kind.SLICE_DOWN, message, changed=index)

    @property
    def done(self) -> int:
        """The number of steps done."""
        return self.latest.step + 1 if self.latest is not None else 0

    def step(self, step: int, metrics: Mapping[str, float], *, slices: int, losses: int) -> None:
        """Note that `step` is complete; a step that is repeated after a loss replaces its earlier note."""
        note = StepNote(step, time.time(), slices, dict(metrics))
        with self._lock:
            # At the end again, so that they are in the order of time.
            self._steps.pop(step, None)
            self._steps[step] = self.latest = note
            self.newest.update(note.metrics)
            self._use(slices, note.at)
        shown = " ".join(f"{name}={value:.6g}" for name, value in metrics.items())
        logger.info(
            "step=%d elastic_manager.elastic_down_event_count=%d elastic_manager.good_slice_count=%d %s",
            *(step, losses, slices, shown),
        )
        self._notify(None)

    def begin(self, *, name: str = "", steps: int | None = None) -> None:
        """Make this the process's latest run, from now on.

        Args:
          name: The name of the training function.
          steps: The steps that it is to do.
        """
        global _latest
        _latest = self
        self.goodput = Goodput()
        self.phase, self.begun, self.ended = Phase.TRAINING, time.time(), None
        self.name, self.total_steps, self.total_slices = name[:_NAME_CHARACTERS], steps, 0

    def has_devices(self, slices: int, session: Session | None) -> None:
        """Set the slices that the run may use, and the session where its events are recorded too.

        They are not known before JAX has its devices.
        """
        self.total_slices = slices
        if session is not None and self._publisher is None:
            # At the end of a short call, that is the state of the training before it.
            self._publisher = Publisher(session, lambda: (shown() or self).now())

    def end(self, *, done: bool | None = None) -> None:
        """Stop the clock; the last state is sent to the session before this returns, if that takes no second.

        Args:
          done: Whether the run has come to its end; default: if it has done all steps.
        """
        global _stays
        self.goodput.end()
        if done is None:
            done = self.total_steps is not None and self.done >= self.total_steps
        self.phase, self.ended = Phase.DONE if done else Phase.STOPPED, time.time()
        _ended.pop(self.id, None)
        _ended[self.id] = self.summary()
        for old in list(_ended)[:-_RUNS]:
            del _ended[old]
        # One that failed at its first steps was no short call.
        steps = max(self.done, self.total_steps or 0)
        if _stays is None or steps * _SHORT >= max(_stays.done, _stays.total_steps or 0):
            _stays = self
        self._notify(None, important=True)
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    @property
    def slices(self) -> list[tuple[float, int]]:
        """The number of slices in use: when it changed, in seconds since the epoch, and to what."""
        with self._lock:
            return list(self._slices)

    def summary(self) -> dict[str, Any]:
        """Return a row of the list of runs: ``ended`` is null while it goes on, ``goodput`` is from 0 to 1."""
        return {
            "run": self.id,
            "name": self.name,
            "phase": self.phase,
            "begun": self.begun,
            "ended": self.ended,
            "step": self.done,
            "steps": self.total_steps,
            "goodput": round(self.goodput.share, 4),
            "losses": self.count(Kind.DETECTED),
        }

    def now(self) -> Event:
        """Return the run as it is now, in the form in which the session's log has it; see docs/session-protocol.md.

        Its ``runs`` is the list of this process's runs, oldest first: of each its :meth:`summary`.
        """
        changes, metrics = self.slices[-_SENT_CHANGES:], list(self.newest.items())[:_SENT_METRICS]
        name = metrics[0][0] if metrics else ""
        runs = dict(_ended)
        if _latest is not None and _latest.ended is None:
            runs.pop(_latest.id, None)
            runs[_latest.id] = _latest.summary()
        data = {
            **self.summary(),
            "slices": changes[-1][1] if changes else 0,
            "total": self.total_slices,
            "changes": [[at, count] for at, count in changes],
            "metrics": {each[:_NAME_CHARACTERS]: _number(value) for each, value in metrics},
            "curve": {
                "metric": name[:_NAME_CHARACTERS],
                "points": [[each.step, _number(each.metrics[name])] for each in self.curve(name, _SENT_POINTS)],
            },
            "seconds": {
                name: round(seconds, 3) for name, seconds in self.goodput.seconds().items() if seconds >= 0.001
            },
            "runs": list(runs.values()),
        }
        done, whole = data["step"], self.total_steps
        said = count(done, "step") if whole is None else f"{done} of {count(whole, 'step')}"
        # A loop of one's own need not note its steps.
        steps = f"{said}, " if self.done or self.total_steps is not None else ""
        message = f"Elastic training is {self.phase}: {steps}goodput {data['goodput']:.1%}."
        return Event(EventKind.ELASTIC_RUN, message, time.time(), data)

    def uses(self, slices: int) -> None:
        """Note how many slices the run uses, without an event."""
        with self._lock:
            self._use(slices, time.time())
        self._notify(None)

    def _use(self, slices: int, at: float) -> None:
        if not self._slices or self._slices[-1][1] != slices:
            self._slices.append((at, slices))

    def _notify(self, event: ElasticEvent | None, *, important: bool = False) -> None:
        """Pass a change on: an event, or a complete step if there is none."""
        if self._publisher is not None:
            recorded = None
            # The supervisor itself reports that a slice is down.
            if event is not None and event.kind is not Kind.SLICE_DOWN:
                numbers = {name: value for name, value in event.data.items() if isinstance(value, int)}
                data = {**numbers, "what": event.kind, "run": self.id, "step": event.step, "slices": [*event.slices]}
                recorded = Event(EventKind.ELASTIC, event.message, event.at, data)
            self._publisher.changed(recorded)
        if _observer is None:
            return
        try:
            _observer(self, important or event is not None)
        except Exception:
            # The observer draws; its error must not stop the training.
            logger.exception("the observer of elastic runs")

    def curve(self, metric: str, most: int = _CURVE_POINTS) -> list[StepNote]:
        """Return about `most` of the steps with `metric` in the order of time, the first and the last included."""
        with self._lock:
            steps = list(self._steps.values())
        steps = [each for each in steps if metric in each.metrics]
        return [*steps[: -1 : -(-len(steps) // most)], steps[-1]] if steps else []

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


Observer = Callable[[Record, bool], None]
"""Called after each change of a run with its record, and whether more than a step's completion has changed."""


def _number(value: float) -> float | None:
    """Return `value` for JSON, which has neither NaN nor infinity."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


_latest: Record | None = None
_observer: Observer | None = None
_ended: dict[str, dict[str, Any]] = {}
"""The rows of the runs that have ended, by id; without their records, which grow with their steps."""
_stays: Record | None = None
"""The run that has ended and stays in the panel."""


def shown() -> Record | None:
    """Return the run to show: the latest while it goes on, afterwards the latest that was not a short call."""
    return _latest if _latest is not None and (_latest.ended is None or _stays is None) else _stays


def latest() -> Record | None:
    """Return the record of the run that began last in this process; None if there was none."""
    return _latest


def observe(observer: Observer) -> None:
    """Call `observer` after each change of any run, from now on and instead of the one before."""
    global _observer
    _observer = observer
