"""A value that a notebook displays and that updates its display when the value changes."""

from __future__ import annotations

import threading
from typing import Any

from pathways_jupyter.render.view import View
from pathways_jupyter.widgets.place import Place


class Live:
    """A picture that updates from its first display on; only its newest display is live.

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
        """Start updating; called once, at the first display."""
        raise NotImplementedError

    def _redraw(self, view: View, *, last: bool = False) -> None:
        """Replace the picture by `view`, unless the last one was drawn already; callable from any thread."""
        with self._lock:
            if self._over:
                return
            self._over = last
            self.view = view
            if self._place is not None:
                self._place.draw(view)
