"""Clocks: this machine's boot clock, which cannot be set, and the API server's.

The time of day is set by users, NTP and hypervisors, backwards too, and a Lease that is renewed in the past is lost at
once. So the server's time is counted on the boot clock, and corrected by the server's own answers.
"""

from __future__ import annotations

import time
from calendar import timegm
from email.utils import parsedate

# macOS has no CLOCK_BOOTTIME; there the raw monotonic clock counts sleep too.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None) or time.CLOCK_MONOTONIC_RAW


def boot_seconds() -> float:
    """Return seconds on a clock that goes on while the computer sleeps, and that setting the time does not change."""
    return time.clock_gettime(_BOOT_CLOCK)


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
