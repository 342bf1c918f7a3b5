"""Call a function again and again in a thread, for what is shown while the cell's own thread waits."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pathways_jupyter.base import interrupts

_REDRAW_SECONDS = 0.5


class Repeated:
    """Calls `function` in a thread until it is stopped.

    Args:
      first: Seconds before the first call; a step that ends sooner shows nothing.
    """

    def __init__(self, function: Callable[[], None], *, name: str, first: float = _REDRAW_SECONDS) -> None:
        self._function = function
        self._first = first
        self._over = interrupts.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start calling it."""
        self._thread.start()

    def stop(self) -> None:
        """Return when no call is running, and none will follow."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = self._first
        while not self._over.wait(pause):
            pause = _REDRAW_SECONDS
            self._function()
