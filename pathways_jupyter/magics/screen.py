"""Where output goes: to a notebook, where a picture is drawn again in place, or to a terminal, line after line."""

from __future__ import annotations

import shutil
import sys
from typing import Any

from pathways_jupyter.magics.discarded import result_is_discarded
from pathways_jupyter.render.view import View
from pathways_jupyter.widgets.place import Place

_ERASE = "\r\x1b[J"
"""Back to the beginning of the line, and nothing from there on."""


def shown(result: Any) -> Any:
    """What a magic returns for `result`: displayed here and now where the cell would discard it."""
    if result is None or not result_is_discarded():
        return result
    from IPython.display import display

    display(result)
    return None


class Screen:
    """The outputs of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._passing = ""

    @property
    def in_place(self) -> bool:
        """Whether a picture can be drawn again, and HTML is understood: true behind a kernel."""
        return getattr(self._shell, "kernel", None) is not None

    def show(self, view: View) -> None:
        """Shows `view` below the running cell, or the last one; from any thread."""
        if self.in_place:
            self._shell.display_pub.publish(view._repr_mimebundle_())
        else:
            self.line(view.text)

    def line(self, text: str) -> None:
        """One line of plain text."""
        self._write(f"{self._erased()}{text}\n")

    def passing(self, text: str) -> None:
        """A line that the next one replaces, in a terminal; where nothing can be erased, a line like others."""
        if not self.out.isatty():
            self.line(text)
            return
        self._write(f"{self._erased()}{text}")
        self._passing = text

    def end_passing(self) -> None:
        """Erase the line that only passes."""
        self._write(self._erased())

    def _erased(self) -> str:
        """What erases the line that only passes, in all rows of the terminal that it takes."""
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
        """Somewhere to draw in a notebook, again and again."""
        return Place(self._shell)
