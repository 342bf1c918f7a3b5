"""What Interrupt leaves of a call: where its hosts were, and what they had said until then."""

from __future__ import annotations

from collections.abc import Sequence

from pathways_jupyter.colocated.channel import Answer
from pathways_jupyter.colocated.results import CallResult
from pathways_jupyter.wording import Face, worded


class Interrupted(KeyboardInterrupt):
    """The call was interrupted, and its hosts were told to stop.

    Args:
      message: Where the hosts were, in one line.
      hint: What ends it where that did not, in the words of the magics.
      answers: What they had answered until then; None when they did not answer any more.

    Attributes:
      result: The same, read; set for cells.
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
