"""A value that shows itself in a notebook, and draws itself again there while what it shows changes."""

from __future__ import annotations

import threading
from typing import Any

from pathways_jupyter.render.view import View
from pathways_jupyter.widgets.place import Place


class Live:
    """A picture that follows what it shows from when it is first displayed; the newest display of it is the live one.

    Args:
      shell: IPython's shell of this kernel.
      view: The picture as it is now.
    """

    def __init__(self, shell: Any, view: View) -> None:
        self.view = view
        self._shell = shell
        self._place: Place | None = None
        self._over = False
        self._lock = threading.Lock()

    @property
    def value(self) -> Any:
        """The typed value that the picture is of, as it is now."""
        return self.view.value

    @property
    def text(self) -> str:
        """The picture as text, as it is now."""
        return self.view.text

    @property
    def html(self) -> str:
        """The picture as HTML, as it is now."""
        return self.view.html

    def __repr__(self) -> str:
        return self.text

    def _ipython_display_(self) -> None:
        with self._lock:
            first = self._place is None
            self._place = Place(self._shell)
            self._place.draw(self.view)
        if first and not self._over:
            self._begin()

    def _begin(self) -> None:
        """Start to follow; called once."""
        raise NotImplementedError

    def _redraw(self, view: View, *, last: bool = False) -> None:
        """Show `view` from now on, unless the last one is shown already; from any thread."""
        with self._lock:
            if self._over:
                return
            self._over = last
            self.view = view
            if self._place is not None:
                self._place.draw(view)
