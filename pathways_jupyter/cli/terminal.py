"""A terminal as an action sees it: results on standard output, as text or JSON, and all else on standard error."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from pathways_jupyter.base import sentences
from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.base.sentences import Face, topic_of, worded
from pathways_jupyter.base.tones import Mark
from pathways_jupyter.render.view import View, as_json

_COLOURS = {Mark.OK: "green", Mark.WARN: "yellow", Mark.FAIL: "red", Mark.WAIT: "yellow"}


class TerminalShell:
    """The :class:`~pathways_jupyter.actions.shell.Shell` of the command line.

    Args:
      as_json: Whether the output is for a program.
    """

    face = Face.TERMINAL

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._has_result = False

    def say(self, text: str) -> None:
        """Show progress, or a remark."""
        click.echo(worded(text, Face.TERMINAL), err=True)

    def line(self, text: str, **data: Any) -> None:
        """Show a line of the output, as an object with its `data` if it is for a program."""
        if self._as_json:
            show_json({"line": text, **data}, indent=None)
        else:
            click.echo(text)

    @contextlib.contextmanager
    def live(self, draw: Callable[[], View | None]) -> Iterator[_Lines]:
        """Print lines instead of views, on standard error if the output is for a program."""
        yield _Lines(self, to_stderr=self._as_json)

    @property
    def can_answer(self) -> bool:
        """Return whether there is a terminal."""
        return sys.stdin.isatty()

    def confirm(self, question: str) -> bool:
        """Ask the user; a no ends the program.

        Raises:
          ConfigError: There is no terminal to answer on.
        """
        if not sys.stdin.isatty():
            raise ConfigError(f"Not done: {question}", hint="Answer on a terminal, or add --yes.")
        return click.confirm(question, abort=True, err=True)

    def stop_following(self) -> None:
        """Say nothing: the shell shows the ``^C``."""

    def show(self, view: View) -> None:
        """Print a result."""
        self._has_result = True
        if self._as_json:
            show_json(view.value)
            return
        for line in view.text.splitlines():
            click.echo(_coloured(line))

    def fail(self, error: PathwaysError) -> None:
        """Print an error for a program, unless that has a result already, which says what failed.

        Not on standard error, where people read it: progress is there too, and what JAX's native code prints.
        """
        if self._as_json and not self._has_result:
            name = type(error).__name__
            topic = "" if type(error) is PathwaysError else topic_of(name)
            # With the template, for a program that shows the hint to its own user, as the server extension does.
            said = {"type": name, **sentences.to_json(error.hint), **error.to_json(Face.TERMINAL), "topic": topic}
            show_json({"error": said}, indent=None)


class _Lines:
    """The :class:`~pathways_jupyter.actions.shell.LiveDisplay` of the command line."""

    in_place = False

    def __init__(self, terminal: TerminalShell, *, to_stderr: bool) -> None:
        self._to_stderr = to_stderr
        self.finish = terminal.show

    def line(self, text: str) -> None:
        click.echo(_coloured(text), err=self._to_stderr)


def _coloured(line: str) -> str:
    """Return `line` with the mark that it begins with in its colour."""
    colour = _COLOURS.get(line.lstrip()[:1])  # type: ignore[call-overload]
    mark = line[: len(line) - len(line.lstrip()) + 1]
    return click.style(mark, fg=colour) + line[len(mark) :] if colour else line


def colours() -> bool | None:
    """Return False if NO_COLOR is set; None otherwise, so that click checks whether the output is a terminal."""
    return False if os.environ.get("NO_COLOR") else None


def show_json(value: Any, *, indent: int | None = 2) -> None:
    """Print `value` as JSON; see :func:`~pathways_jupyter.render.view.as_json`."""
    click.echo(as_json(value, indent=indent))
