"""Read from a proxy's log which slices it holds.

Kubernetes does not know: the resource manager assigns slices. The proxy logs each transition of a slice, in newer
releases with the worker Job that it was placed on. An older proxy's log shows only how many slices are placed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pathways_jupyter.service import untrusted

MOST_LOGS = 64
"""Logs of proxies that one client reads. Everyone who looks at a namespace reads those of all its proxies, so without a
limit their number grows with the square of that of the users. Beyond it, holders are counted and not located."""
_LONGEST_LINE = 4096
"""The rest of a line is not searched: who runs a proxy may print lines of a megabyte, and every reader searches all."""
_TRANSITION = re.compile(
    r"Transition slice (?P<slice>[0-9]{1,4})(?: \([^)]{0,64}\))? "
    r"(?P<before>[\w-]{1,32}) -> (?P<after>[\w-]{1,32})(?: on (?P<job>[a-z0-9][-a-z0-9.]{0,251}[a-z0-9]))?"
)


@dataclass(frozen=True)
class Transition:
    """One line of a proxy's log.

    Attributes:
      slice: The proxy's own index of the slice, counted from zero in the order of its requests.
      placed: Whether the slice is usable from now on.
      worker_job: The Job of its workers; empty in older logs.
    """

    slice: int
    placed: bool
    worker_job: str

    @property
    def number(self) -> int | None:
        """The service's number of the slice, which its worker Job's name ends with; None in older logs."""
        number = self.worker_job.rpartition("-")[2]
        return untrusted.count(number, untrusted.MOST_SLICES)


@dataclass
class Placement:
    """The slices that a proxy holds after the lines read so far.

    Attributes:
      slices: The worker Job of each placed slice, by the proxy's index of it (empty where the log does not name it).
      lost: The worker Job of each slice that was placed and has gone down, likewise: the proxy waits for it.
      since: When the first slice was placed, in seconds since the epoch; 0 while none was, or if lines have no times.
    """

    slices: dict[int, str] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    since: float = 0.0

    def feed(self, line: str) -> Transition | None:
        """Process one line of the log; return its transition, or None for a line about something else.

        Args:
          line: It may begin with the time at which it was written, as Kubernetes has noted it.
        """
        change = parse(line)
        if change is not None and change.placed:
            self.since = self.since or untrusted.time(line.partition(" ")[0])
            self.slices[change.slice] = change.worker_job
            self.lost.pop(change.slice, None)
        elif change is not None and change.slice in self.slices:
            self.lost[change.slice] = self.slices.pop(change.slice)
        return change

    @property
    def placed(self) -> int:
        """Number of placed slices."""
        return len(self.slices)


def parse(line: str) -> Transition | None:
    """Parse a line of a proxy's log; None when it is not about a transition."""
    match = _TRANSITION.search(line[:_LONGEST_LINE])
    if match is None:
        return None
    return Transition(int(match["slice"]), match["after"] == "placed", match["job"] or "")
