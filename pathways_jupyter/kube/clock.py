"""Clocks: this machine's boot clock, which cannot be set, and the API server's; and how far away that is.

The time of day is set by users, NTP and hypervisors, backwards too, and a Lease that is renewed in the past is lost at
once. So the server's time is counted on the boot clock, and corrected by the server's own answers.
"""

from __future__ import annotations

import time
from calendar import timegm
from collections import deque
from email.utils import parsedate

# macOS has no CLOCK_BOOTTIME; there the raw monotonic clock counts sleep too.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None) or time.CLOCK_MONOTONIC_RAW


def boot_seconds() -> float:
    """Return seconds on a clock that goes on while the computer sleeps, and that setting the time does not change."""
    return time.clock_gettime(_BOOT_CLOCK)


_RECENT_SECONDS = 30.0
"""For how long a round trip counts as the present one."""


class RoundTrip:
    """The time to the API server and back, as a client's own requests and pings show it.

    Attributes:
      waited_at: When the last answer came that data of a full line had delayed, in :func:`boot_seconds`.
    """

    def __init__(self) -> None:
        self.waited_at = 0.0
        self._measured = deque[tuple[float, float]](maxlen=16)

    def add(self, sent: float) -> None:
        """Count an answer that has just arrived to what was sent at `sent`, in :func:`boot_seconds`."""
        now = boot_seconds()
        self._measured.append((now, now - sent))

    @property
    def seconds(self) -> float:
        """The shortest of the last half minute: others waited behind data, or for the server; 0 where none is known."""
        now = boot_seconds()
        return min((taken for at, taken in self._measured if now - at <= _RECENT_SECONDS), default=0.0)


class ServerClock:
    """The API server's time; this machine's until the first answer."""

    def __init__(self) -> None:
        self._offset = time.time() - boot_seconds()

    def now(self) -> float:
        """Return seconds since the epoch."""
        return boot_seconds() + self._offset

    def correct(self, date: str, sent: float) -> None:
        """Correct the clock by the ``Date`` header of an answer that has just arrived.

        Args:
          sent: When the request was sent, in :func:`boot_seconds`.
        """
        parsed = parsedate(date)
        if parsed is None:
            return
        # The header has whole seconds, and the server wrote it between `sent` and now. Within these bounds the clock
        # stays as it is, so that it does not jump by fractions of a second with every answer.
        at = timegm(parsed)
        self._offset = min(max(self._offset, at - boot_seconds()), at + 1.0 - sent)
