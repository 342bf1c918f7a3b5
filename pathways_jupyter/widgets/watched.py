"""A live picture of something in a cluster."""

from __future__ import annotations

import contextlib
import logging
from abc import abstractmethod
from typing import Any, ClassVar

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.render.view import View
from pathways_jupyter.widgets.live import Live

_MAX_LIVE = 3
"""Pictures of one kind that are live at a time in one kernel; an older one is marked as no longer live."""

logger = logging.getLogger(__name__)


class Watched(Live):
    """A picture that a thread with an event loop keeps up to date.

    Args:
      shell: IPython's shell of this kernel.

    Attributes:
      watched: The pictures of this kind that are live.
      superseded: What an older picture says when there are too many.
    """

    watched: ClassVar[list[Watched]]
    superseded: ClassVar[str]

    def __init__(self, shell: Any) -> None:
        self._watching: tasks.Call | None = None
        super().__init__(shell, self._drawn())

    @abstractmethod
    def _drawn(self, note: str = "") -> View:
        """Return the picture as it is now, with `note` below."""

    @abstractmethod
    async def _watch(self) -> None:
        """Redraw the picture whenever something changes, until there is nothing more to watch."""

    def end(self, note: str = "") -> None:
        """Draw the picture a last time, with `note` below, and stop watching."""
        self._redraw(self._drawn(note), last=True)
        with contextlib.suppress(ValueError):
            self.watched.remove(self)
        if self._watching is not None:
            self._watching.cancel()

    def _begin(self) -> None:
        self.watched.append(self)
        self._watching = tasks.Call(self._run())
        self._watching.start()
        for older in self.watched[:-_MAX_LIVE]:
            older.end(f"No longer live, because {self.superseded}; run this cell again for the current state.")

    async def _run(self) -> None:
        note = ""
        try:
            await self._watch()
        except PathwaysError as error:
            note = f"No longer live: {error} {error.hint}".rstrip()
        except Exception as error:
            note = f"No longer live: {type(error).__name__}: {error}"
            logger.exception("a live picture")
        self.end(note)
