"""A live picture of something in a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import abstractmethod
from typing import Any, ClassVar

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.render.view import View
from pathways_jupyter.widgets.live import Live

_MAX_LIVE = 3
"""Pictures of one kind that are live at a time in one kernel; an older one is marked as no longer live."""


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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
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
        if self._loop is not None and self._task is not None and not self._loop.is_closed():
            # The watch runs in another thread's event loop, and a task may only be cancelled from its own.
            self._loop.call_soon_threadsafe(self._task.cancel)

    def _begin(self) -> None:
        # A daemon thread, so that a kernel can exit without waiting for it.
        threading.Thread(target=self._run, name=f"pathways-{type(self).__name__}", daemon=True).start()
        self.watched.append(self)
        for older in self.watched[:-_MAX_LIVE]:
            older.end(f"No longer live, because {self.superseded}; run this cell again for the current state.")

    def _run(self) -> None:
        async def watch() -> None:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            await self._watch()

        note = ""
        try:
            asyncio.run(watch())
        except asyncio.CancelledError:
            return
        except PathwaysError as error:
            note = f"No longer live: {error} {error.hint}".rstrip()
        self.end(note)
