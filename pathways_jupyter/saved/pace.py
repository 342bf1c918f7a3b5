"""Progress of the hosts in writing or reading arrays, and the time that it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

from pathways_jupyter.base.text import size

Report = Callable[[str, str], None]
"""Called with what is done at the moment and how far it is; on any thread."""

_LEAST_BYTES = 1 << 20
"""Fewer bytes are written so fast that their pace says nothing of others."""
_rates: dict[tuple[str, str], float] = {}
"""Bytes a second, by what was done and where, as of the last time."""

WRITE, READ = "write the arrays", "read the arrays"


def seconds(title: str, place: str, nbytes: int) -> float | None:
    """Return how long it takes to write or read so much in `place`, at the last pace there; None if that is unknown."""
    rate = _rates.get((title, place))
    return None if rate is None else nbytes / rate


def about(left: float | None) -> str:
    """Return an estimated time in words, at the end of a sentence; empty if it is unknown."""
    if left is None:
        return ""
    return f", about {left / 60:.0f} min" if left > 90 else f", about {max(1, round(left))} s"


class Pace:
    """Reports how far hosts are, and remembers how fast they were.

    Args:
      title: :data:`WRITE` or :data:`READ`.
      place: Where; the hosts' pace is remembered for it.
      report: Gets the title, and a sentence.
    """

    def __init__(self, title: str, place: str, report: Report | None) -> None:
        self._title, self._place, self._report = title, place, report
        self._began = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Take note of the bytes that are `done`, of `total`."""
        took = max(time.monotonic() - self._began, 1e-6)
        if done >= _LEAST_BYTES:
            _rates[self._title, self._place] = done / took
        left = seconds(self._title, self._place, total - done) if total > done else None
        if self._report is not None:
            self._report(self._title, f"{size(done)} of {size(total)}{about(left)}{' left' if left else ''}")
