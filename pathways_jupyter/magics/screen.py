"""Output to a notebook, where views are updated in place, or to a terminal, line by line."""

from __future__ import annotations

import dis
import shutil
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

from pathways_jupyter.base import interrupts
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import Face, advice
from pathways_jupyter.render.view import View
from pathways_jupyter.widgets.live import REDRAW_SECONDS, CellOutput

_ERASE = "\r\x1b[J"
"""Return to the start of the line and clear the screen from there on."""

_RUNNERS = {"run_line_magic", "run_cell_magic"}
_DEPTH = 8
"""Frames between a magic's own method and the cell; decorators of other extensions may add some."""


def shown(result: Any) -> Any:
    """Return `result` from a magic, or display it now and return None if the cell would discard it."""
    if result is None or not _is_discarded():
        return result
    from IPython.display import display

    display(result)
    return None


def _is_discarded() -> bool:
    """Return whether the cell that called the running magic drops what it returns; False where that cannot be known.

    IPython shows the value of a cell's last expression only. ``%pathways status`` followed by another line would show
    nothing, so a magic displays its result itself there; and must not where the value is assigned, or where IPython is
    about to display it. Only the caller's code knows which it is: the instruction after the call discards it or not.
    """
    frame = sys._getframe(1)
    for _ in range(_DEPTH):
        caller = frame.f_back
        if caller is None:
            return False
        if frame.f_code.co_name in _RUNNERS:
            after = (each for each in dis.get_instructions(caller.f_code) if each.offset > caller.f_lasti)
            return next((each.opname == "POP_TOP" for each in after if each.opname != "CACHE"), False)
        frame = caller
    return False


class Screen:
    """The outputs of one shell; the :class:`~pathways_jupyter.actions.shell.Shell` of the magics.

    Args:
      shell: IPython's; None in a script.
    """

    face = Face.NOTEBOOK

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._passing = ""

    @property
    def in_place(self) -> bool:
        """Return whether views can be updated and HTML can be shown: true in a kernel."""
        return getattr(self._shell, "kernel", None) is not None

    def show(self, view: View) -> None:
        """Show `view` below the running cell, or the last one; callable from any thread."""
        if self.in_place:
            self._shell.display_pub.publish(view._repr_mimebundle_())
        else:
            self.line(view.text)

    def line(self, text: str, **data: Any) -> None:
        """Print one line of plain text."""
        self._write(f"{self._erased()}{text}\n")

    say = line

    @property
    def can_answer(self) -> bool:
        """Return whether there is a terminal; in a notebook true, as the front end shows only when it is asked."""
        return self._shell is not None or sys.stdin.isatty()

    def confirm(self, question: str) -> bool:
        """Ask the user.

        Raises:
          ConfigError: The front end cannot show the question.
        """
        from IPython.core.error import StdinNotImplementedError

        try:
            with interrupts.raise_sigint():
                return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
        except KeyboardInterrupt:
            # Without the front end's own words for it.
            raise KeyboardInterrupt() from None
        except (StdinNotImplementedError, EOFError):
            raise ConfigError(f"Not done: {question}", hint=advice("No answer can be given here: add {yes}.")) from None

    def live(self, draw: Callable[[], View | None]) -> Redrawn:
        """Draw in place what `draw` returns, until the block ends."""
        return Redrawn(self, draw)

    def stop_following(self) -> None:
        """Print that an Interrupt has ended what the user followed."""
        self.line("(no longer following)")

    def passing(self, text: str) -> None:
        """Print a line that the next one replaces in a terminal; elsewhere an ordinary line."""
        if not self._out.isatty():
            self.line(text)
            return
        self._write(f"{self._erased()}{text}")
        self._passing = text

    def end_passing(self) -> None:
        """Erase the temporary line."""
        self._write(self._erased())

    def _erased(self) -> str:
        """Return the control sequence that erases the temporary line, including the rows that it wraps over."""
        if not self._passing:
            return ""
        above = (len(self._passing) - 1) // shutil.get_terminal_size().columns
        self._passing = ""
        return (f"\x1b[{above}A" if above else "") + _ERASE

    @property
    def _out(self) -> TextIO:
        # A script's standard output is its own.
        return sys.stdout if self._shell is not None else sys.stderr

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            # A kernel sends what has accumulated a few times a second; a flush would cost a message for each line.
            if not self.in_place:
                self._out.flush()

    def new_output(self) -> CellOutput:
        """Return a new output in a notebook that can be updated."""
        return CellOutput(self._shell)


class Repeated:
    """Calls `function` in a thread until it is stopped.

    Args:
      first: Seconds before the first call; a step that ends sooner shows nothing.
    """

    def __init__(self, function: Callable[[], None], *, name: str, first: float = REDRAW_SECONDS) -> None:
        self._function = function
        self._first = first
        self._over = interrupts.InterruptibleEvent()
        self._calling = threading.Lock()
        self._name = name

    def start(self) -> None:
        """Start calling it."""
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """Return when no call is running, and none will follow."""
        self._over.set()
        with self._calling:
            pass

    def _run(self) -> None:
        pause = self._first
        while not self._over.wait(pause):
            pause = REDRAW_SECONDS
            with self._calling:
                if not self._over.is_set():
                    self._function()


class Redrawn:
    """The magics' :class:`~pathways_jupyter.actions.shell.LiveDisplay`: in a notebook a view that is drawn in place.

    Its own thread draws, so that times go on while nothing else happens.
    """

    def __init__(self, screen: Screen, draw: Callable[[], View | None]) -> None:
        self.in_place = screen.in_place
        self._screen = screen
        self._output = screen.new_output() if screen.in_place else None
        self._draw = draw
        self._repeated = Repeated(self._redraw, name="pathways-redrawn")

    def __enter__(self) -> Redrawn:
        if self._output is not None:
            self._repeated.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._repeated.stop()

    def line(self, text: str) -> None:
        """Print a line where nothing can be drawn in place."""
        if self._output is None:
            self._screen.line(text)

    def finish(self, view: View) -> None:
        """Draw the last view, or print it."""
        self._repeated.stop()
        if self._output is not None:
            self._output.draw(view)
        else:
            self._screen.line(view.text)

    def _redraw(self) -> None:
        view = self._draw()
        if self._output is not None and view is not None:
            self._output.draw(view)
