"""The permissions of those who inject faults into their own workers on a real cluster."""

from __future__ import annotations

from pathways_jupyter.kube.objects import JOBSETS, NODES, PODS
from pathways_jupyter.service.checks import Level, Need

_ROLE = "pathways-jupyter-faults"

# Connecting needs none of these, so the doctor only warns.
FAULT_NEEDS: tuple[Need, ...] = (
    Need(JOBSETS, ("get",), level=Level.WARN, purpose="find the workers of a slice", role=_ROLE),
    Need(PODS, ("list", "delete"), level=Level.WARN, purpose="find workers, and keep one down (--for)", role=_ROLE),
    Need(PODS, ("get", "create"), "exec", level=Level.WARN, purpose="kill a worker from inside", role=_ROLE),
    Need(PODS, ("create",), "eviction", level=Level.WARN, purpose="drain a node", role=_ROLE),
    Need(NODES, ("get", "list", "patch"), level=Level.WARN, purpose="cordon and uncordon nodes", role=_ROLE),
)
