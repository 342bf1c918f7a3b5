"""Settings of a cluster, as ``up`` passes them to the daemon, which records them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_IDLE_SECONDS = 1800.0
HOLLOW_ANNOTATION = "pathways-jupyter/hollow"
"""Set to ``"true"`` on pods that are reported as running without starting processes; for tests of scale."""


@dataclass(frozen=True)
class Settings:
    """Settings of a cluster.

    Attributes:
      instances: Slices per instance type; each type becomes a service of its own.
      spare: Slices per instance type whose nodes belong to no service, until someone deploys one.
      idle_seconds: How long the cluster stays up without being used.
      sidecar: Give every worker pod a colocated Python sidecar.
      hollow: Report the services' pods as running without starting processes; for tests of scale.
      port: Where the API listens; 0 for any free port.
      fast_heal: Replace failed pods after a second or two instead of after Kubernetes' 10, 20, 40 ... seconds.
      bucket: Directory of the bucket's objects, which stays when the cluster ends; empty for one that does not.
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
    def cpu_nodes(self) -> int:
        """Nodes without TPUs: one for the head of each service that there may be, and one for all other pods."""
        # JobSet's exclusive topology gives each head a node of its own.
        return 1 + len(self.instances) + sum(self.spare.values())


def larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Per instance type the larger one of two numbers of slices."""
    return {kind: max(one.get(kind, 0), other.get(kind, 0)) for kind in {**one, **other}}
