"""Outline of a service from its Jobs alone: a first picture, while its pods are still being listed.

A slice has one Job but many pods, and the Job's status counts the pods that are ready. So a large cluster can be drawn
long before all of its pods have arrived. What only the pods show (names, nodes, reasons, holders) is left empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pathways_jupyter.kube.objects import Object
from pathways_jupyter.service import names, status
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.podstate import State


def outline(service: ServiceInfo, jobs: Iterable[Object]) -> status.Service:
    """Return the outline of `service`, from the Jobs of its namespace.

    Slices are ready or starting: only the pods show whether a slice is down.
    """
    listed = list(jobs)
    ready = {str(job["metadata"]["name"]): int((job.get("status") or {}).get("ready") or 0) for job in listed}
    drawn = status.picture(service, pods=(), jobs=listed)
    return replace(
        drawn,
        slices=tuple(_slice(each, ready.get(each.worker_job, 0)) for each in drawn.slices),
        ready=ready.get(f"{service.name}-{names.HEAD_JOB}-0", 0) > 0,
        certain=not drawn.holders,
        reason="",
    )


def _slice(each: status.Slice, ready: int) -> status.Slice:
    state = State.READY if ready >= len(each.hosts) else State.STARTING
    return replace(each, state=state, hosts=tuple(status.Host(host.index, state) for host in each.hosts))
