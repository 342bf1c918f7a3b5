"""The error of an interrupted call, with its hosts' positions and the answers received so far."""

from __future__ import annotations

from collections.abc import Sequence

from pathways_jupyter.colocated.channel import Answer
from pathways_jupyter.colocated.results import CallResult
from pathways_jupyter.wording import Face, worded


class Interrupted(KeyboardInterrupt):
    """The call was interrupted, and its hosts were asked to stop.

    Args:
      message: Where the hosts were, in one line.
      hint: How to end code that did not stop, in terms of the magics.
      answers: The hosts' answers; None if they did not answer.

    Attributes:
      result: The decoded answers; set for cells.
    """

    def __init__(self, message: str, answers: Sequence[Answer] | None = None, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(worded(hint, Face.SCRIPT))
        self.answers = answers
        self.result: CallResult | None = None

    def _render_traceback_(self) -> list[str]:
        said = str(self).rstrip(".")
        return [f"Interrupted: {said}. {self.hint}" if self.hint else f"Interrupted: {self}"]
