"""Notice that this process did not run for a while: the computer slept, or the process was stopped.

A session that does not run renews no Lease. What happens on waking (a broken connection, a proxy that was removed) does
not say why, and the event loop processes it together with the timers that are overdue; so the clocks are compared when
somebody asks, and not only when a timer fires.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

_TICK_SECONDS = 0.5
_LEAST_SECONDS = 1.5
"""What is shorter is a busy machine."""


@dataclass(frozen=True)
class Pause:
    """A time in which this process did not run.

    Attributes:
      ended: When, by :func:`now`.
      asleep: Whether the whole computer slept, and not this process alone stood still.
    """

    seconds: float
    ended: float
    asleep: bool

    def __str__(self) -> str:
        if self.asleep:
            return f"This computer slept for {self.seconds:.0f} s"
        return f"The session's supervisor did not run for {self.seconds:.0f} s"


def now() -> float:
    """Seconds on a clock that goes on while the computer sleeps."""
    # macOS has none that is also steady; there the time of day does.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()


class PauseWatch:
    """Keeps the last pause of this process, for as long as :meth:`run` runs."""

    def __init__(self) -> None:
        self._last: Pause | None = None
        self._seen, self._seen_awake = now(), time.monotonic()

    async def run(self) -> None:
        """Look at the clocks again and again."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.last()

    def last(self) -> Pause | None:
        """Return the last pause, also one that ended this moment."""
        seen, awake = now(), time.monotonic()
        # Beyond what a timer that is on time leaves between two looks.
        paused = seen - self._seen - _TICK_SECONDS
        if paused > _LEAST_SECONDS:
            # The monotonic clock stands still while the computer sleeps.
            slept = (seen - self._seen) - (awake - self._seen_awake)
            self._last = Pause(paused, seen, asleep=slept > paused / 2)
        self._seen, self._seen_awake = seen, awake
        return self._last
