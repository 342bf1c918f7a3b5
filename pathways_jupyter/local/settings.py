"""Settings of a cluster, as ``up`` passes them to the daemon, which records them; and the delays that one of them sets.

Kubernetes waits longer after each failure, which delays a client that waits for a slice: the third loss of a worker
costs 40 seconds. A demonstration or a test that cannot wait heals fast: it never waits longer than two.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pathways_jupyter.base import tpu
from pathways_jupyter.service import names

DEFAULT_IDLE_SECONDS = 1800.0
HOLLOW_ANNOTATION = "pathways-jupyter/hollow"
"""Set to ``"true"`` on pods that are reported as running without starting processes; for tests of scale."""

_HOSTS_PER_CORE = 16
_HOST_BYTES = 128 * 1024**2
"""A worker and its sidecar take about 25 MB while they are idle; the arrays of a program come on top."""
_LEAST_HOSTS = 8
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of a cluster.

    Attributes:
      instances: Slices per instance type; each type becomes a service of its own.
      spare: Slices per instance type whose nodes belong to no service, until someone deploys one.
      idle_seconds: How long the cluster stays up without being used.
      sidecar: Give every worker pod a colocated Python sidecar.
      hollow: Report the services' pods as running without starting processes; for tests of scale.
      port: Where the API listens; 0 for any free port.
      fast_heal: Replace failed pods after a second or two instead of after Kubernetes' 10, 20, 40 ... seconds.
      bucket: Directory of the bucket's objects, which nothing removes; empty for the cluster's own.
    """

    instances: Mapping[str, int]
    spare: Mapping[str, int] = field(default_factory=dict)
    idle_seconds: float = DEFAULT_IDLE_SECONDS
    sidecar: bool = False
    hollow: bool = False
    port: int = 0
    fast_heal: bool = False
    bucket: str = ""

    @property
    def nodes(self) -> Mapping[str, int]:
        """Slices per instance type that the cluster has nodes for."""
        kinds = {**self.instances, **self.spare}
        return {kind: self.instances.get(kind, 0) + self.spare.get(kind, 0) for kind in kinds}

    @property
    def services(self) -> Mapping[str, str]:
        """The instance type of each of its own services, by name."""
        return {
            # The first one has the name that clients look for.
            names.DEFAULT_SERVICE if position == 0 else re.sub("[^a-z0-9]+", "-", kind): kind
            for position, kind in enumerate(self.instances)
        }

    @property
    def hosts(self) -> int:
        """Hosts of its own services, each of them a few processes."""
        return sum(tpu.parse_instance_type(kind).hosts * slices for kind, slices in self.instances.items())

    @property
    def job_restarts(self) -> RetryDelay:
        """The wait before a Job's next pod."""
        return FAST_RESTARTS if self.fast_heal else JOB_RESTARTS

    @property
    def container_restarts(self) -> RetryDelay:
        """The wait before a container's next start."""
        return FAST_RESTARTS if self.fast_heal else CONTAINER_RESTARTS


def most_hosts() -> int:
    """Return how many hosts this machine runs well; generous, because most of them idle."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # Of a container that has a limit.
    with contextlib.suppress(OSError, ValueError):
        memory = min(memory, int(_MEMORY_LIMIT.read_text("ascii")))
    return max(_LEAST_HOSTS, min(_HOSTS_PER_CORE * (os.cpu_count() or 1), memory // _HOST_BYTES))


def larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Return, per instance type, the larger one of two numbers of slices."""
    return {kind: max(one.get(kind, 0), other.get(kind, 0)) for kind in {**one, **other}}


@dataclass(frozen=True)
class RetryDelay:
    """The wait after a failure: before a pod or container is replaced, or something else is tried again.

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


class Failures:
    """Failures of one thing, one after the other."""

    def __init__(self, delay: RetryDelay) -> None:
        self.count = 0
        self._delay = delay
        self._last = -math.inf

    def add(self) -> float:
        """Count a failure that has just happened; return the seconds to wait."""
        now = time.monotonic()
        self.count = 1 if now - self._last >= self._delay.forgotten_seconds else self.count + 1
        self._last = now
        return self._delay.wait(self.count)

    @property
    def left(self) -> float:
        """The seconds that are left of the wait; 0 or less once it is over."""
        return self._last + self._delay.wait(self.count) - time.monotonic()


JOB_RESTARTS = RetryDelay(first_seconds=10.0, max_seconds=600.0)
"""Before a Job's next pod, as in Kubernetes: only a pod that succeeds makes the Job controller forget."""
CONTAINER_RESTARTS = RetryDelay(first_seconds=10.0, max_seconds=300.0, at_once=1, forgotten_seconds=600.0)
"""Before a container's next start, as in Kubernetes."""
FAST_RESTARTS = RetryDelay(first_seconds=1.0, max_seconds=2.0, at_once=1, forgotten_seconds=60.0)
