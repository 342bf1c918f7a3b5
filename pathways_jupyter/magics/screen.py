"""Output to a notebook, where pictures are updated in place, or to a terminal, line by line."""

from __future__ import annotations

import dis
import shutil
import sys
from typing import Any

from pathways_jupyter.render.view import View
from pathways_jupyter.widgets.live import Place

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
    """Whether the cell that called the running magic drops what it returns; False where that cannot be known.

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
    """The outputs of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._passing = ""

    @property
    def in_place(self) -> bool:
        """Whether pictures can be updated and HTML can be shown: true in a kernel."""
        return getattr(self._shell, "kernel", None) is not None

    def show(self, view: View) -> None:
        """Show `view` below the running cell, or the last one; callable from any thread."""
        if self.in_place:
            self._shell.display_pub.publish(view._repr_mimebundle_())
        else:
            self.line(view.text)

    def line(self, text: str) -> None:
        """Print one line of plain text."""
        self._write(f"{self._erased()}{text}\n")

    def passing(self, text: str) -> None:
        """Print a line that the next one replaces in a terminal; elsewhere an ordinary line."""
        if not self.out.isatty():
            self.line(text)
            return
        self._write(f"{self._erased()}{text}")
        self._passing = text

    def end_passing(self) -> None:
        """Erase the temporary line."""
        self._write(self._erased())

    def _erased(self) -> str:
        """The control sequence that erases the temporary line, including the rows that it wraps over."""
        if not self._passing:
            return ""
        above = (len(self._passing) - 1) // shutil.get_terminal_size().columns
        self._passing = ""
        return (f"\x1b[{above}A" if above else "") + _ERASE

    @property
    def out(self) -> Any:
        """The stream that lines are written to."""
        return sys.stdout

    def _write(self, text: str) -> None:
        if text:
            self.out.write(text)
            self.out.flush()

    def place(self) -> Place:
        """A new output in a notebook that can be updated."""
        return Place(self._shell)
