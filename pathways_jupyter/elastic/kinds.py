"""The words for what happens to an elastic run, shared by its record, the session's log and all pictures of it."""

from __future__ import annotations

from enum import StrEnum


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
    INJECTED = "injected"
    """A fault on purpose."""


class Phase(StrEnum):
    """What a run does at a moment."""

    TRAINING = "training"
    RECOVERING = "recovering"
    """From the moment that a loss is noticed to the first complete step after it."""
    WAITING = "waiting"
    """Too few slices are up."""
    DONE = "done"
    """All steps are complete."""
    STOPPED = "stopped"
    """It ended before all steps were complete: by an error or an Interrupt."""


PHASES = {
    Kind.DETECTED: Phase.RECOVERING,
    Kind.RESTORED: Phase.RECOVERING,
    Kind.WAITING: Phase.WAITING,
    Kind.RESUMED: Phase.TRAINING,
    Kind.GROWN: Phase.TRAINING,
}
"""The phase that begins with an event."""
