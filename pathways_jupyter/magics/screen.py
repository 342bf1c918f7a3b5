"""Where output goes: to a notebook, where a picture is drawn again in place, or to a terminal, line after line."""

from __future__ import annotations

import sys
from typing import Any

from pathways_jupyter.magics.discarded import result_is_discarded
from pathways_jupyter.render.view import View
from pathways_jupyter.widgets.place import Place


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
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def place(self) -> Place:
        """Somewhere to draw in a notebook, again and again."""
        return Place(self._shell)
