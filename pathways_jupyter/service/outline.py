"""A service as its Jobs tell it: a first picture, while its pods are still being listed.

A Job says how many of its pods are ready, and there is one for each slice where there are several pods; so a large
cluster can be drawn long before all of its pods have arrived. What only pods tell (names, nodes, reasons, who holds
what) is left open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pathways_jupyter.kube.objects import Object
from pathways_jupyter.service import names, status
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.podstate import State


def outline(service: ServiceInfo, jobs: Iterable[Object]) -> status.Service:
    """What `jobs`, those of the service's namespace, tell of `service`.

    A slice is ready, or else starting: whether it is down, only its pods know.
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
