"""The words for what happens to an elastic run, shared by its record, the session's log and all pictures of it."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from pathways_jupyter.base.sentences import Sentence, say
from pathways_jupyter.session.kernel import process


class Kind(StrEnum):
    """Kinds of elastic events."""

    SLICE_DOWN = "slice-down"
    SLICE_UP = "slice-up"
    DETECTED = "detected"
    """The loop noticed that slices it uses are gone."""
    RESTORED = "restored"
    """A snapshot was put on the remaining slices."""
    RESUMED = "resumed"
    """The first step after a change of slices is complete, or a function has been called again."""
    GROWN = "grown"
    WAITING = "waiting"
    """Fewer slices than allowed; training is paused."""
    RETRY = "retry"
    INJECTED = "injected"
    """A fault on purpose."""


class Phase(StrEnum):
    """Phase of a run."""

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


def listed(slices: Collection[int]) -> Sentence:
    """Return slices, which are given by JAX's index, for people: for the end of a sentence."""
    numbers = _numbers(slices)
    return say("slice {number}", number=numbers) if len(slices) == 1 else say("slices {numbers}", numbers=numbers)


def _numbers(slices: Collection[int]) -> str:
    numbers = process.slice_numbers()
    return ", ".join(numbers.get(index, str(index)) for index in sorted(slices)) or "none"


def lost_words(lost: Collection[int], error: BaseException | None) -> Sentence:
    """Return the sentence for slices that were lost, or for `error` if none was."""
    numbers = _numbers(lost)
    if lost:
        return (
            say("Slice {number} lost.", number=numbers)
            if len(lost) == 1
            else say("Slices {numbers} lost.", numbers=numbers)
        )
    return (
        say("A step or a transfer failed.")
        if error is None
        else say("A step or a transfer failed: {reason}", reason=str(error).partition("\n")[0])
    )


def paused_words(up: int, wanted: int) -> Sentence:
    """Return the sentence for a run that waits, because `up` slices can be used and `wanted` are needed."""
    return say("Training pauses: {up} of at least {wanted} slices are up.", up=up, wanted=wanted)
