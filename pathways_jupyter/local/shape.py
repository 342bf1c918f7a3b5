"""Configuration of a cluster, as ``up`` passes it to the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pathways_jupyter.local.apiserver.idling import STREAM_IDLE_SECONDS

REPAIR_SECONDS = 10.0
"""How long a deleted node stays away."""


@dataclass(frozen=True)
class Shape:
    """Configuration of a cluster.

    Attributes:
      instances: Slices per instance type.
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
