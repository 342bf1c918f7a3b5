"""What Interrupt leaves of a call: where its hosts were, and what they had said until then."""

from __future__ import annotations

from collections.abc import Sequence

from pathways_jupyter.colocated.channel import Answer
from pathways_jupyter.colocated.results import CallResult


class Interrupted(KeyboardInterrupt):
    """The call was interrupted, and its hosts were told to stop.

    Args:
      message: Where the hosts were, in one line.
      answers: What they had answered until then; None when they did not answer any more.

    Attributes:
      result: The same, read; set for cells.
    """

    def __init__(self, message: str, answers: Sequence[Answer] | None = None) -> None:
        super().__init__(message)
        self.answers = answers
        self.result: CallResult | None = None

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}"]
