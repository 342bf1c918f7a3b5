"""An output of a notebook that is updated in place, and a value that updates its displays when it changes."""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.render.view import View

if TYPE_CHECKING:
    from pathways_jupyter.base import tasks

REDRAW_SECONDS = 0.5
"""Shortest time between two updates: each is a message to the browser and changes the notebook's file."""
_MAX_LIVE = 3
"""Pictures of one kind that are live at a time in one kernel; an older one is marked as no longer live."""

logger = logging.getLogger(__name__)


class CellOutput:
    """An output that can be drawn repeatedly.

    Args:
      shell: IPython's shell of this kernel.

    Attributes:
      drawn: Whether anything was drawn yet; until then the output does not exist.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._id = uuid.uuid4().hex
        self._lock = threading.Lock()
        self.drawn = False

    def draw(self, view: View) -> None:
        """Replace this output by `view`; callable from any thread.

        The first call creates the output below the cell that runs, or ran last.
        """
        bundle, transient = view._repr_mimebundle_(), {"display_id": self._id}
        # Two threads that both drew for the first time would make two outputs, one of which is never updated.
        with self._lock:
            self._shell.display_pub.publish(bundle, transient=transient, update=self.drawn)
            self.drawn = True


class Live(ABC):
    """A view that updates from its first display on; only its newest display is live.

    Args:
      shell: IPython's shell of this kernel.
      view: The view as it is now.
    """

    def __init__(self, shell: Any, view: View) -> None:
        self.view = view
        self._shell = shell
        self._output: CellOutput | None = None
        self._over = False
        self._lock = threading.Lock()

    @property
    def value(self) -> Any:
        """The typed value that the view is of, as it is now."""
        return self.view.value

    @property
    def text(self) -> str:
        """The view as text, as it is now."""
        return self.view.text

    @property
    def html(self) -> str:
        """The view as HTML, as it is now."""
        return self.view.html

    def __repr__(self) -> str:
        return self.text

    def _ipython_display_(self) -> None:
        with self._lock:
            first = self._output is None
            self._output = CellOutput(self._shell)
            self._output.draw(self.view)
        if first and not self._over:
            self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Start updating; called once, at the first display."""

    def _redraw(self, view: View, *, last: bool = False) -> None:
        """Replace the view by `view`, unless the last one was drawn already; callable from any thread."""
        with self._lock:
            if self._over:
                return
            self._over = last
            self.view = view
            if self._output is not None:
                self._output.draw(view)


class Watched(Live):
    """A view that a thread with an event loop keeps up to date.

    Args:
      shell: IPython's shell of this kernel.

    Attributes:
      watched: The views of this kind that are live.
      superseded: What an older view says when there are too many.
    """

    watched: ClassVar[list[Watched]]
    superseded: ClassVar[str]

    def __init__(self, shell: Any) -> None:
        self._watching: tasks.Call | None = None
        super().__init__(shell, self._drawn())

    @abstractmethod
    def _drawn(self, note: str = "") -> View:
        """Return the view as it is now, with `note` below."""

    @abstractmethod
    async def _watch(self) -> None:
        """Redraw the view whenever something changes, until there is nothing more to watch."""

    def end(self, note: str = "") -> None:
        """Draw the view a last time, with `note` below, and stop watching."""
        self._redraw(self._drawn(note), last=True)
        with contextlib.suppress(ValueError):
            self.watched.remove(self)
        if self._watching is not None:
            self._watching.cancel()

    def _begin(self) -> None:
        self.watched.append(self)
        self._start()
        for older in self.watched[:-_MAX_LIVE]:
            older.end(f"No longer live, because {self.superseded}; run this cell again for the current state.")

    def _start(self) -> None:
        """Start watching, or start again."""
        # asyncio is not for those who have loaded the extension and show nothing.
        from pathways_jupyter.base import tasks

        if self._watching is not None:
            self._watching.cancel()
        self._watching = tasks.Call(self._run())
        self._watching.start()

    async def _run(self) -> None:
        note = ""
        try:
            await self._watch()
        except PathwaysError as error:
            note = f"No longer live: {error} {error.hint}".rstrip()
        except Exception as error:
            note = f"No longer live: {type(error).__name__}: {error}"
            logger.exception("a live view")
        self.end(note)
