"""The end of a training run for which another thread asks, because its session is going to be suspended."""

from __future__ import annotations

import sys
import threading
import time

from pathways_jupyter.elastic.record import Record
from pathways_jupyter.saved import on_devices
from pathways_jupyter.saved.arrays import Report
from pathways_jupyter.saved.values import UnsavableError

_END_SECONDS = 60.0
"""Longest wait for a step, and a snapshot after it."""
_THREAD_SECONDS = 0.5
"""Longest wait for the thread of a run that has ended."""
_PAUSE_SECONDS = 0.02
_PACKAGE = __name__.rpartition(".")[0]


class RunEnd:
    """The end of one run, which looks between its steps whether it is asked for.

    Made on the thread of the run.

    Attributes:
      thread: That thread.
      is_asked_for: Whether the run is to end.
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        self.thread = threading.get_ident()
        self.is_asked_for = False

    def __str__(self) -> str:
        return f"the training run at step {self._record.done}"

    def offer(self) -> None:
        """Let a suspend find the run, and end it."""
        on_devices.runs.add(self)

    def withdraw(self) -> None:
        """Undo :meth:`offer`, because the run ends."""
        on_devices.runs.discard(self)

    def end(self, report: Report | None) -> None:
        """End the run after its present step; called on another thread.

        Raises:
          UnsavableError: It has not ended after some time.
        """
        self.is_asked_for, began = True, time.monotonic()
        if report is not None:
            report("end the training run", "")
        try:
            # What the loop's functions hold is in use until they have left their thread.
            while self._is_inside():
                if time.monotonic() - began > _END_SECONDS:
                    raise UnsavableError(
                        f"The training run has not ended {_END_SECONDS:.0f} s after it was asked to, and goes on.",
                        hint="Wait for its step, or for the slices for which it pauses.",
                    )
                time.sleep(_PAUSE_SECONDS)
        except BaseException:
            # Nothing is suspended.
            self.is_asked_for = False
            raise
        # Often the thread ends with its error, which holds them a moment longer.
        left = time.monotonic()
        while self.thread in sys._current_frames() and time.monotonic() - left < _THREAD_SECONDS:
            time.sleep(_PAUSE_SECONDS)

    def _is_inside(self) -> bool:
        """Return whether the thread runs a function of this package."""
        frame = sys._current_frames().get(self.thread)
        while frame is not None and frame.f_globals.get("__name__", "").rpartition(".")[0] != _PACKAGE:
            frame = frame.f_back
        return frame is not None
