"""Configuration of a cluster, as ``up`` passes it to the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pathways_jupyter.local.connection_bounds import STREAM_IDLE_SECONDS

REPAIR_SECONDS = 10.0
"""How long a deleted node stays away."""


@dataclass(frozen=True)
class Shape:
    """Configuration of a cluster.

    Attributes:
      instances: Slices per instance type; each type becomes a service of its own.
      spare: Slices per instance type whose nodes belong to no service, until someone deploys one.
      sidecar: Give every worker pod a colocated Python sidecar.
      hollow: Report the services' pods as running without starting processes; for tests of scale.
      port: Where the API listens; 0 for any free port.
      repair_seconds: How long a deleted node stays away.
      stream_idle_seconds: How long a port-forward or an exec may be idle before it is cut.
      fast_heal: Replace failed pods after a second or two instead of after Kubernetes' 10, 20, 40 ... seconds.
    """

    instances: Mapping[str, int]
    sidecar: bool = False
    hollow: bool = False
    port: int = 0
    repair_seconds: float = REPAIR_SECONDS
    stream_idle_seconds: float = STREAM_IDLE_SECONDS
    fast_heal: bool = False
    spare: Mapping[str, int] = field(default_factory=dict)

    @property
    def nodes(self) -> Mapping[str, int]:
        """Slices per instance type that the cluster has nodes for."""
        return {
            kind: self.instances.get(kind, 0) + self.spare.get(kind, 0) for kind in {**self.instances, **self.spare}
        }

    @property
    def cpu_nodes(self) -> int:
        """Nodes without TPUs: one for the head of each service that there may be, and one for all other pods."""
        # JobSet's exclusive topology gives each head a node of its own.
        return 1 + len(self.instances) + sum(self.spare.values())
