"""Interface of the shell that runs an action, be it a notebook or a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.render.view import View

Values = Mapping[str, Any]
"""The options and words of a command by name; only those that were given."""


INTERRUPTED = 130
"""The exit code of a command that an Interrupt has ended."""
NOT_RUNNING = 3
"""The exit code of a command that shows the state of what does not run; the convention of init scripts."""


class CommandInterrupted(PathwaysError):
    """An Interrupt has ended a command that had begun to change something; the message says what stays."""

    exit_code = INTERRUPTED


class Contradiction(ConfigError):
    """Options that exclude each other, or one that needs another."""


class LiveDisplay(Protocol):
    """A view that is drawn again and again where that can be done, such as in a notebook."""

    in_place: bool

    def line(self, text: str) -> None:
        """Show a line of output where the view is not drawn."""

    def finish(self, view: View) -> None:
        """Show the last view, instead of those before it."""


class Shell(Protocol):
    """A notebook or a terminal.

    An action calls these methods instead of yielding what it says. An Interrupt that comes while a line is written is
    raised when the action waits next; see :mod:`pathways_jupyter.base.interrupts`.
    """

    face: Face

    @property
    def can_answer(self) -> bool:
        """Return whether the user can answer a question; a notebook shows that only when it is asked."""

    def say(self, text: str) -> None:
        """Show progress, or a remark; it is no part of the result."""

    def line(self, text: str, **data: Any) -> None:
        """Show a line of the output; `data` is what a program gets beside it."""

    def live(self, draw: Callable[[], View | None]) -> AbstractContextManager[LiveDisplay]:
        """Show what `draw` returns until the block ends, where that can be done; another thread may call it."""

    def confirm(self, question: str) -> bool:
        """Ask the user; in a terminal, a no ends the command with an exit code of its own.

        Raises:
          ConfigError: No answer can be given here.
        """

    def stop_following(self) -> None:
        """Show that an Interrupt has ended what the user followed."""


Action = Callable[[Shell, Values], View | None]
"""Implementation of a command: takes the parsed options, and returns what to show unless it has shown it as lines."""


def show_lines(shell: Shell, log: AbstractContextManager[Iterable[str]], *, follow: bool, **data: Any) -> None:
    """Show the lines of a log; where it is followed, an Interrupt is its normal end."""
    try:
        with log as lines:
            for line in lines:
                shell.line(line, **data)
    except KeyboardInterrupt:
        if not follow:
            raise
        shell.stop_following()
