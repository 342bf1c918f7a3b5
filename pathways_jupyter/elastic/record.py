"""Events and steps of an elastic run with their times, and the lines that it writes to Python's log.

The log has a line per step in the form of pathwaysutils' elastic examples
(``step=12 elastic_manager.elastic_down_event_count=1 elastic_manager.good_slice_count=2``), which their scripts read.

Steps come from the training's thread. Events come also from the threads that watch slices and compile ahead. The panel,
the session's log and exports read beside them.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pathways_jupyter.base.text import count
from pathways_jupyter.base.tones import Tone, Toned
from pathways_jupyter.elastic.goodput import Goodput
from pathways_jupyter.session.kernel import process

logger = logging.getLogger("pathways_jupyter.elastic")

_SLICE_CHANGES = 1000
"""Changes of the number of slices that are kept."""
_CURVE_POINTS = 400
"""Points of a curve; more cannot be seen at the width of a notebook."""
LONGEST_NAME = 40
"""In characters, of the names of a run, and of its metrics in the session's log."""


class Kind(Toned):
    """Kinds of elastic events."""

    SLICE_DOWN = "slice-down", Tone.FAIL
    SLICE_UP = "slice-up", Tone.OK
    DETECTED = "detected", Tone.FAIL
    """The loop noticed that slices it uses are gone."""
    RESTORED = "restored", Tone.WARN
    """A snapshot was put on the remaining slices."""
    RESUMED = "resumed", Tone.OK
    """The first step after a change of slices is complete, or a function has been called again."""
    GROWN = "grown", Tone.OK
    WAITING = "waiting", Tone.WARN
    """Fewer slices than allowed; training is paused."""
    RETRY = "retry", Tone.WARN
    """There is no new proxy yet, or there is one now."""
    NOTE = "note", Tone.WARN
    """A finding that changes nothing now: snapshots that were not written or read, a step not compiled ahead."""
    INJECTED = "injected", Tone.WARN
    """A fault on purpose."""


class Phase(Toned):
    """Phase of a run."""

    TRAINING = "training", Tone.OK
    RECOVERING = "recovering", Tone.WARN
    """From the moment that a loss is noticed to the first complete step after it."""
    WAITING = "waiting", Tone.WAIT
    """Too few slices are up."""
    DONE = "done", Tone.OK
    """All steps are complete."""
    STOPPED = "stopped", Tone.FAIL
    """It ended before all steps were complete: by an error or an Interrupt."""


_PHASES = {
    Kind.DETECTED: Phase.RECOVERING,
    Kind.RESTORED: Phase.RECOVERING,
    Kind.WAITING: Phase.WAITING,
    Kind.RESUMED: Phase.TRAINING,
    Kind.GROWN: Phase.TRAINING,
}
"""The phase that begins with an event."""
_LOGGED_BEFORE = frozenset({Kind.SLICE_DOWN, Kind.SLICE_UP})
"""Events that :class:`~pathways_jupyter.elastic.health.Health` has logged."""


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
      done: The number of steps done; after a restore, of those that the restored state has.
      latest: The step that was completed last; None before the first of a run.
      newest: The newest value of each metric.
      listener: Called after each change with the record, an event or None, and whether it is more than a step.
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
        self.done = 0
        self.newest: dict[str, float] = {}
        self._slices: deque[tuple[float, int]] = deque(maxlen=_SLICE_CHANGES)
        self.latest: StepNote | None = None
        self.listener: Callable[[Record, ElasticEvent | None, bool], None] = lambda record, event, important: None

    def add(
        self,
        kind: Kind,
        message: str,
        *,
        step: int | None = None,
        slices: tuple[int, ...] = (),
        loud: bool = False,
        **data: Any,
    ) -> None:
        """Append an event; `step` is the next one if left out, and it is logged as a warning if it is `loud`."""
        event = ElasticEvent(kind, message, time.time(), self.done or None if step is None else step, slices, data)
        with self._lock:
            self._events.append(event)
            self.phase = _PHASES.get(kind, self.phase)
            if slices or kind is Kind.DETECTED:
                self._use(len(slices), event.at)
        if kind not in _LOGGED_BEFORE:
            # Python shows a warning also where no log has been set up: in a cell without the panel, a run that waits
            # would stand still without a word.
            logger.log(logging.WARNING if loud or kind is Kind.WAITING else logging.INFO, "%s", message)
        # Outside of the lock, because it reads the record.
        self.listener(self, event, True)

    def slice_changed(self, index: int, up: bool, message: str) -> None:
        """Add the event that slice `index` went down or came back; a listener for :class:`Health`."""
        self.add(Kind.SLICE_UP if up else Kind.SLICE_DOWN, message, changed=index)

    def step(self, step: int, metrics: Mapping[str, float], *, slices: int, losses: int) -> None:
        """Note that `step` is complete; a step that is repeated after a loss replaces its earlier note."""
        note = StepNote(step, time.time(), slices, dict(metrics))
        with self._lock:
            # At the end again, so that they are in the order of time.
            self._steps.pop(step, None)
            self._steps[step] = self.latest = note
            self.done = step + 1
            self.newest.update(note.metrics)
            self._use(slices, note.at)
        shown = " ".join(f"{name}={value:.6g}" for name, value in metrics.items())
        logger.info(
            "step=%d elastic_manager.elastic_down_event_count=%d elastic_manager.good_slice_count=%d %s",
            *(step, losses, slices, shown),
        )
        self.listener(self, None, False)

    def begin(self, *, name: str = "", steps: int | None = None) -> None:
        """Start the clock; :class:`~pathways_jupyter.elastic.run_registry.RunRegistry` also shows the run."""
        self.goodput = Goodput()
        self.phase, self.begun, self.ended = Phase.TRAINING, time.time(), None
        self.name, self.total_steps, self.total_slices = name[:LONGEST_NAME], steps, 0
        # Of an earlier run with this record.
        self.done, self.latest = 0, None

    def end(self, *, done: bool | None = None) -> None:
        """Stop the clock.

        Args:
          done: Whether the run has come to its end; default: if it has done all steps.
        """
        self.goodput.end()
        if done is None:
            done = self.total_steps is not None and self.done >= self.total_steps
        self.phase, self.ended = Phase.DONE if done else Phase.STOPPED, time.time()

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
            "tone": self.phase.tone,
            "progress": self.progress,
            "begun": self.begun,
            "ended": self.ended,
            "step": self.done,
            "steps": self.total_steps,
            "goodput": round(self.goodput.share, 4),
            "losses": self.count(Kind.DETECTED),
        }

    @property
    def length(self) -> int:
        """The steps that distinguish a run from a short call: 0 where it had nothing to do."""
        if self.phase is Phase.DONE and self.latest is None:
            return 0
        # One that failed at its first steps was no short call.
        return max(self.done, self.total_steps or 0)

    @property
    def progress(self) -> str:
        """The steps done, as ``120 of 500 steps``; empty for a loop of one's own that does not note its steps."""
        # With more, the snapshots of a longer run had them already.
        if self.total_steps is not None and self.done <= self.total_steps:
            return f"{self.done} of {count(self.total_steps, 'step')}"
        return count(self.done, "step") if self.done else ""

    def uses(self, slices: int) -> None:
        """Note how many slices the run uses, without an event."""
        with self._lock:
            self._use(slices, time.time())
        self.listener(self, None, False)

    def _use(self, slices: int, at: float) -> None:
        if not self._slices or self._slices[-1][1] != slices:
            self._slices.append((at, slices))

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


def listed(slices: Collection[int]) -> str:
    """Return slices, which are given by JAX's index, for people: for the end of a sentence."""
    numbers = _numbers(slices)
    return f"slice {numbers}" if len(slices) == 1 else f"slices {numbers}"


def _numbers(slices: Collection[int]) -> str:
    numbers = process.slice_numbers()
    return ", ".join(numbers.get(index, str(index)) for index in sorted(slices)) or "none"


def lost_words(lost: Collection[int], error: BaseException | None) -> str:
    """Return the sentence for slices that were lost, or for `error` if none was."""
    numbers = _numbers(lost)
    if lost:
        return f"Slice {numbers} lost." if len(lost) == 1 else f"Slices {numbers} lost."
    if error is None:
        return "A step or a transfer failed."
    reason = str(error).partition("\n")[0]
    return f"A step or a transfer failed: {reason}"


def paused_words(up: int, needed: int) -> str:
    """Return the sentence for a run that waits, because `up` slices can be used and `needed` are needed."""
    return f"Training pauses: {up} of at least {needed} slices are up."
