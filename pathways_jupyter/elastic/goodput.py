"""Where the time of a training run went, in the categories of ml-goodput-measurement.

At every moment the run is in exactly one category, so that the sum of all is the time that has passed. A recorder of
ml-goodput-measurement may follow, so that its calculator and dashboards show the run.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

logger = logging.getLogger(__name__)


class Spent(StrEnum):
    """Categories of time; all but the first are lost to training (badput)."""

    STEP = "STEP"
    """Steps whose effect is in the state."""
    TPU_INITIALIZATION = "TPU_INITIALIZATION"
    """Until JAX has its devices, at the begin and after the loss of the proxy."""
    TRAINING_PREP = "TRAINING_PREP"
    PROGRAM_STARTUP = "PROGRAM_STARTUP"
    """Compilation."""
    DATA_LOADING = "DATA_LOADING_SYNC"
    CHECKPOINT_SAVE = "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME"
    CHECKPOINT_RESTORE = "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME"
    WASTED_PROGRESS = "WASTED_PROGRESS_FROM_DISRUPTION"
    """Steps that were done and had to be repeated, or were lost before they were complete."""
    SLICE_DOWN = "ELASTIC_SLICE_DOWN"
    """Waiting for slices, with too few to train."""
    SCALE_UP = "ELASTIC_SCALE_UP"
    REINITIALIZATION = "ELASTIC_REINITIALIZATION"


_SPANS: dict[Spent, tuple[str, dict[str, str]]] = {
    Spent.TPU_INITIALIZATION: ("tpu_init", {}),
    Spent.TRAINING_PREP: ("training_preparation", {}),
    Spent.DATA_LOADING: ("data_loading", {}),
    Spent.SLICE_DOWN: ("elastic_wait", {"event_type": "elastic_slice_down"}),
    Spent.SCALE_UP: ("elastic_wait", {"event_type": "elastic_scale_up"}),
    Spent.REINITIALIZATION: ("elastic_reinit", {}),
    # Their checkpoint times come from Orbax's log; a restore of ours is part of what follows a loss.
    Spent.CHECKPOINT_RESTORE: ("elastic_reinit", {}),
    Spent.CHECKPOINT_SAVE: ("custom_badput_event", {"custom_badput_event_type": Spent.CHECKPOINT_SAVE}),
    Spent.PROGRAM_STARTUP: ("custom_badput_event", {"custom_badput_event_type": Spent.PROGRAM_STARTUP}),
}
"""What of the recorder's a category is: ``record_SPAN_start_time``, ``record_SPAN_end_time``, and arguments."""
_BETWEEN_STEPS = frozenset(
    {
        Spent.SLICE_DOWN,
        Spent.SCALE_UP,
        Spent.REINITIALIZATION,
        Spent.CHECKPOINT_RESTORE,
        Spent.TPU_INITIALIZATION,
    }
)


class Goodput:
    """A running account, written by one thread; any thread may read it while the run goes on.

    Args:
      sink: Follows it.
    """

    def __init__(self, sink: GoodputSink | None = None) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._now_in = Spent.TRAINING_PREP
        self._ended = False
        self._spent = dict.fromkeys(Spent, 0.0)
        self._steps: dict[int, float] = {}

    @contextlib.contextmanager
    def during(self, what: Spent) -> Iterator[None]:
        """Context manager: the time of the block counts as `what`, except for that of blocks inside it."""
        before = self._switch(what)
        try:
            yield
        finally:
            self._switch(before)

    def begin_steps(self) -> None:
        """From now on, what is in no other category is a step."""
        self._switch(Spent.STEP)

    def step(self, number: int) -> None:
        """The time since the last step was step `number`; if it was done before, the earlier time was wasted."""
        self._switch(self._now_in)
        with self._lock:
            self._spent[Spent.WASTED_PROGRESS] += self._steps.get(number, 0.0)
            self._steps[number], self._spent[Spent.STEP] = self._spent[Spent.STEP], 0.0
        if self._sink is not None:
            self._sink.step(number)

    def waste(self) -> None:
        """The time since the last step was in vain."""
        self._switch(self._now_in)
        with self._lock:
            self._spent[Spent.WASTED_PROGRESS] += self._spent[Spent.STEP]
            self._spent[Spent.STEP] = 0.0
        if self._sink is not None:
            self._sink.wasted()

    def end(self) -> None:
        """Stop the clock; no-op the second time."""
        self._switch(self._now_in)
        if self._sink is not None and not self._ended:
            self._sink.ended()
        self._ended = True

    def seconds(self) -> Mapping[Spent, float]:
        """Return the seconds by category, up to now."""
        with self._lock:
            spent = {**self._spent, Spent.STEP: self._spent[Spent.STEP] + sum(self._steps.values())}
            if not self._ended:
                spent[self._now_in] += time.monotonic() - self._since
        return spent

    @property
    def share(self) -> float:
        """The share of the time so far that went into productive steps, from 0 to 1."""
        spent = self.seconds()
        total = sum(spent.values())
        return spent[Spent.STEP] / total if total else 0.0

    def _switch(self, to: Spent) -> Spent:
        """Add the time since the last switch to the present category; return that category."""
        with self._lock:
            now = time.monotonic()
            before = self._now_in
            if not self._ended:
                self._spent[before] += now - self._since
            self._since, self._now_in = now, to
        if self._sink is not None and to is not before:
            self._sink.entered(to)
        return before

    def __str__(self) -> str:
        spent = self.seconds()
        total = sum(spent.values()) or 1.0
        parts = [f"{name} {each:.1f} s ({each / total:.0%})" for name, each in spent.items() if each >= 0.05]
        return f"goodput {self.share:.1%} of {total:.1f} s: " + ", ".join(parts)


class GoodputSink:
    """Writes to an ``ElasticGoodputRecorder``; called on the training's thread.

    That package takes a step to last until the next one starts. So what belongs to no step is cut out: where a run
    stops stepping and goes on, the start of the next step is recorded before and after, which its calculator reads as a
    restart at that step. A step's start is recorded when it is complete, with its own time, because only then its
    number is known.

    Args:
      recorder: Of ml-goodput-measurement. What it cannot record is left out, with a warning in the log.
    """

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._failed: set[str] = set()
        self._began: datetime.datetime | None = None
        self._last = -1
        self._now_in = Spent.TRAINING_PREP
        self._record("job_start_time", start_time=_now())
        self._edge(Spent.TRAINING_PREP, "start")

    def entered(self, to: Spent) -> None:
        """The time that follows counts as `to`."""
        before, self._now_in = self._now_in, to
        if _SPANS.get(before) != _SPANS.get(to):
            self._edge(before, "end")
            self._edge(to, "start")
        if to in _BETWEEN_STEPS and self._began is not None and self._last >= 0:
            self._record("step_start_time", step=self._last + 1, start_time=self._began)
            self._began = None
        elif to is Spent.STEP and self._began is None:
            self._began = _now()

    def step(self, number: int) -> None:
        """Step `number` is complete."""
        now = _now()
        self._record("step_start_time", step=number, start_time=self._began or now)
        self._last, self._began = number, now

    def wasted(self) -> None:
        """What was begun after the last complete step is lost."""
        if self._began is not None and self._last >= 0:
            self._record("step_start_time", step=self._last + 1, start_time=self._began)
            # Otherwise the calculator would not know how long it took until the loss was noticed.
            self._record("step_start_time", step=self._last + 2, start_time=_now())
        self._began = None

    def slices(self, active: int, total: int, available: int) -> None:
        """The number of slices in use has changed."""
        self._record("elastic_slice_counts", active_slices=active, total_slices=total, available_slices=available)

    def ended(self) -> None:
        """The run is over."""
        self._edge(self._now_in, "end")
        self._record("job_end_time", end_time=_now())

    def _edge(self, what: Spent, edge: str) -> None:
        if what in _SPANS:
            span, arguments = _SPANS[what]
            self._record(f"{span}_{edge}_time", **arguments, **{f"{edge}_time": _now()})

    def _record(self, what: str, **values: Any) -> None:
        try:
            getattr(self._recorder, f"record_{what}")(**values)
        except Exception as error:
            # E.g. the log's service is away; the training goes on, and its log stays readable.
            if what not in self._failed:
                self._failed.add(what)
                logger.warning("the goodput recorder does not record %s: %s", what, error)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
