"""Back-off before failed pods and containers are replaced: as in Kubernetes, or short for demonstrations.

Kubernetes waits longer after each failure, which delays a client that waits for a slice: the third loss of a worker
costs 40 seconds. A demonstration or a test that cannot wait uses :data:`FAST`, which never waits longer than two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class BackOff:
    """The wait before a failed pod or container is replaced.

    Attributes:
      first_seconds: The first wait; each further failure doubles it.
      max_seconds: The longest wait.
      at_once: How many failures cost no wait.
      forgotten_seconds: A failure this long after the last one counts as the first.
    """

    first_seconds: float
    max_seconds: float
    at_once: int = 0
    forgotten_seconds: float = math.inf

    def wait(self, failures: int) -> float:
        """Return the seconds to wait after so many failures."""
        doublings = failures - self.at_once - 1
        return min(self.first_seconds * 2.0 ** min(doublings, 32), self.max_seconds) if doublings >= 0 else 0.0


JOB_RESTARTS = BackOff(first_seconds=10.0, max_seconds=600.0)
"""Before a Job's next pod, as in Kubernetes: only a pod that succeeds makes the Job controller forget."""
CONTAINER_RESTARTS = BackOff(first_seconds=10.0, max_seconds=300.0, at_once=1, forgotten_seconds=600.0)
"""Before a container's next start, as in Kubernetes."""
FAST_RESTARTS = BackOff(first_seconds=1.0, max_seconds=2.0, at_once=1, forgotten_seconds=60.0)
