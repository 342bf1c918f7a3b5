"""An output of a notebook that is updated in place, and a value that updates its displays when it changes."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from typing import Any

from pathways_jupyter.render.view import View

REDRAW_SECONDS = 0.5
"""Shortest time between two updates: each is a message to the browser and changes the notebook's file."""


class Place:
    """An output that can be drawn repeatedly.

    Args:
      shell: IPython's shell of this kernel.

    Attributes:
      drawn: Whether anything was drawn yet; until then the output does not exist.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._id = uuid.uuid4().hex
        self.drawn = False

    def draw(self, view: View) -> None:
        """Replace this output by `view`; callable from any thread.

        The first call creates the output below the cell that runs, or ran last.
        """
        self._shell.display_pub.publish(view._repr_mimebundle_(), transient={"display_id": self._id}, update=self.drawn)
        self.drawn = True


class Live(ABC):
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

    @abstractmethod
    def _begin(self) -> None:
        """Start updating; called once, at the first display."""

    def _redraw(self, view: View, *, last: bool = False) -> None:
        """Replace the picture by `view`, unless the last one was drawn already; callable from any thread."""
        with self._lock:
            if self._over:
                return
            self._over = last
            self.view = view
            if self._place is not None:
                self._place.draw(view)
