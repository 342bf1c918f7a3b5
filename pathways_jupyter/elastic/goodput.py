"""Time of a training run, in the categories of ml-goodput-measurement.

At every moment the run is in exactly one category, so that the sum of all is the time that has passed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


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


Writer = Literal["hosts", "notebook"]


@dataclass
class SnapshotCost:
    """Cost of one snapshot.

    Attributes:
      step: The state before this step.
      nbytes: Bytes of the state, without its replicas.
      waited: Seconds for which training stood still; they are in ``CHECKPOINT_SAVE``.
      copied: Seconds until it was on the hosts or in the notebook, beside training; None if it never was.
      written: Seconds for which it was then being written, beside training; None if it was not.
      writer: What wrote it, to a directory or a bucket; None if it was not written.
    """

    step: int = 0
    nbytes: int = 0
    waited: float = 0.0
    copied: float | None = None
    written: float | None = None
    writer: Writer | None = None

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Context manager: training stands still for this snapshot."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.waited += time.monotonic() - began


class Goodput:
    """A running account, written by one thread; any thread may read it while the run goes on.

    Attributes:
      snapshots: What each snapshot cost, in the order in which they were taken.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._now_in = Spent.TRAINING_PREP
        self._ended = False
        self._spent = dict.fromkeys(Spent, 0.0)
        self._steps: dict[int, float] = {}
        self.snapshots: list[SnapshotCost] = []

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
        """Count the time since the last step as step `number`; if that was done before, the earlier time was wasted."""
        self._switch(self._now_in)
        with self._lock:
            self._spent[Spent.WASTED_PROGRESS] += self._steps.get(number, 0.0)
            self._steps[number], self._spent[Spent.STEP] = self._spent[Spent.STEP], 0.0

    def waste(self) -> None:
        """Count the time since the last step as wasted."""
        self._switch(self._now_in)
        with self._lock:
            self._spent[Spent.WASTED_PROGRESS] += self._spent[Spent.STEP]
            self._spent[Spent.STEP] = 0.0

    def end(self) -> None:
        """Stop the clock; no-op the second time."""
        self._switch(self._now_in)
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
        return before

    def __str__(self) -> str:
        spent = self.seconds()
        total = sum(spent.values()) or 1.0
        parts = [f"{name} {each:.1f} s ({each / total:.0%})" for name, each in spent.items() if each >= 0.05]
        return f"goodput {self.share:.1%} of {total:.1f} s: " + ", ".join(parts)
