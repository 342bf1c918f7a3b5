"""Detect that this process did not run for a while: the computer slept, or the process was stopped.

A supervisor that does not run renews no Lease. The errors on waking (a broken connection, a removed proxy) do not name
the cause, and the event loop may process them before the overdue timers. So the clocks are compared on every query, not
only when a timer fires.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

_TICK_SECONDS = 0.5
_LEAST_SECONDS = 1.5
"""Shorter gaps are normal on a busy machine."""


@dataclass(frozen=True)
class Pause:
    """A period in which this process did not run.

    Attributes:
      ended: When it ended, by :func:`now`.
      asleep: Whether the whole computer slept; False when only this process was stopped.
    """

    seconds: float
    ended: float
    asleep: bool

    def __str__(self) -> str:
        if self.asleep:
            return f"This computer slept for {self.seconds:.0f} s"
        return f"The session's supervisor did not run for {self.seconds:.0f} s"


def now() -> float:
    """Return seconds on a clock that continues while the computer sleeps."""
    # macOS has no such steady clock; the time of day is close enough there.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()


class PauseWatch:
    """Records the last pause of this process while :meth:`run` is running."""

    def __init__(self) -> None:
        self._last: Pause | None = None
        self._seen, self._seen_awake = now(), time.monotonic()

    async def run(self) -> None:
        """Compare the clocks every half second."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.last()

    def last(self) -> Pause | None:
        """Return the last pause, including one that ended just now; None when there was none."""
        seen, awake = now(), time.monotonic()
        # What exceeds the interval of a timer that fires on time.
        paused = seen - self._seen - _TICK_SECONDS
        if paused > _LEAST_SECONDS:
            # The monotonic clock stops while the computer sleeps, the other one does not.
            slept = (seen - self._seen) - (awake - self._seen_awake)
            self._last = Pause(paused, seen, asleep=slept > paused / 2)
        self._seen, self._seen_awake = seen, awake
        return self._last
