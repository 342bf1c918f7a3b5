"""Calls that are made a moment later, where there is an event loop to make them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Later:
    """Makes one call at a time for each name, `seconds` after it was asked for; at once where no event loop runs."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def call(self, name: str, function: Callable[[], object]) -> None:
        """Call `function` later, unless a call for `name` is due already."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            function()
            return

        def run() -> None:
            del self._timers[name]
            function()

        if name not in self._timers:
            self._timers[name] = loop.call_later(self._seconds, run)

    def cancel(self) -> None:
        """Make none of the calls that are due."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
