"""The rows of JSON values that slice map and sidebar show, and the differences between two sets of them.

The TypeScript types are in labextension/src/models/wire.ts: change both together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pathways_jupyter.base import tpu
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube.objects import Object
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.feed import Row, difference
from pathways_jupyter.service.images import Image
from pathways_jupyter.service.model import Holder, Service, Slice
from pathways_jupyter.service.pathwaysjob import conditions, description
from pathways_jupyter.service.podstate import State

Tables = dict[str, dict[str, Row]]
"""Rows by table (``slices``, ``services``, ``proxies``, ``jobs``) and id."""

RowCache = dict[str, tuple[object, Row]]
"""Cache: rows of slices as last made, by their id, with the input that each was made from."""

EMPTY: Tables = {"slices": {}, "services": {}, "proxies": {}, "jobs": {}}


def tables(
    services: Sequence[tuple[ServiceInfo, Service]],
    *,
    heads: Mapping[str, str],
    me: str,
    jobs: Iterable[Object],
    cache: RowCache | None = None,
    clock_ahead: int = 0,
) -> Tables:
    """Return the tables of a cluster, with all times by this machine's clock.

    Args:
      services: The description and the model of each service.
      heads: Name of the resource manager's pod, by service.
      me: The user label of the user who looks at the tables.
      jobs: JobSets and PathwaysJobs.
      cache: Of a caller that makes the same cluster's tables repeatedly: unchanged slices keep their rows.
      clock_ahead: Seconds by which this machine's clock is ahead of the cluster's.
    """
    drawn: Tables = {name: {} for name in EMPTY}
    rows: RowCache = {} if cache is None else cache
    for info, service in services:
        service_key = f"{service.namespace}/{service.name}"
        chips = tpu.chips_of_hosts(service.instance_type)
        drawn["services"][service_key] = _service(service_key, info, service, heads.get(service.name, ""), sum(chips))
        held: dict[str, list[str]] = {}
        for each in service.slices:
            key, source = (
                f"{service_key}/{each.index}",
                (
                    each,
                    service.availability(each),
                    service.instance_type,
                    me,
                    clock_ahead,
                ),
            )
            former = rows.get(key)
            # Cheap: a slice is the same object until it is drawn again.
            if former is None or former[0] != source:
                former = rows[key] = source, _slice(key, service, each, chips, me, clock_ahead)
            drawn["slices"][key] = former[1]
            if each.held_by is not None:
                held.setdefault(each.held_by.job, []).append(str(each.index))
        for holder in service.holders:
            row = _proxy(service, holder, held.get(holder.job, []), me, clock_ahead)
            drawn["proxies"][row["id"]] = row
    for job in jobs:
        row = _job(job, clock_ahead)
        drawn["jobs"][row["id"]] = row
    return drawn


def differences(before: Tables, now: Tables) -> tuple[dict[str, list[Row]], dict[str, list[str]]]:
    """Return the rows to put and the ids to drop, by table, to get from `before` to `now`."""
    changed = {name: difference(before.get(name, {}), rows) for name, rows in now.items()}
    return (
        {name: put for name, (put, _) in changed.items() if put},
        {name: drop for name, (_, drop) in changed.items() if drop},
    )


def _service(service_key: str, info: ServiceInfo, service: Service, head: str, chips: int) -> Row:
    return {
        "id": service_key,
        "name": service.name,
        "namespace": service.namespace,
        "address": service.address,
        "version": Image.parse(info.image).tag,
        "health": service.state,
        "tone": service.state.tone,
        "reason": service.problem,
        "pod": head,
        "capacity": [
            {
                "instance_type": service.instance_type,
                "chips": chips,
                "total": len(service.slices),
                "ready": service.ready,
                "free": service.free,
                "reclaimable": service.reclaimable,
            }
        ]
        if service.instance_type
        else [],
    }


def _slice(key: str, service: Service, each: Slice, chips: Sequence[int], me: str, ahead: int) -> Row:
    held = each.held_by
    return {
        "id": key,
        "service": service.name,
        "number": each.index,
        "instance_type": service.instance_type,
        "health": each.state,
        "tone": each.state.tone,
        "availability": service.availability(each),
        "hosts": [
            {
                "pod": host.pod,
                "node": host.node,
                "health": host.state,
                "tone": host.state.tone,
                "chips": chips[host.index] if host.index < len(chips) else 1,
                "reason": host.reason,
            }
            for host in each.hosts
        ],
        "remarks": list(each.remarks),
        "holder": {**_owner(held, me, ahead), "since": held.since + ahead} if held else None,
    }


def _proxy(service: Service, holder: Holder, held: list[str], me: str, ahead: int) -> Row:
    # Without a slice it starts, unless it had some and has lost them.
    without = State.DOWN if held else State.STARTING
    health = State.READY if holder.pod and holder.placed else without
    return {
        **_owner(holder, me, ahead),
        "id": f"{service.namespace}/{holder.job}",
        "service": service.name,
        "health": health,
        # Its pod may be well: what holds it is silent, and it is kept only until its slices are needed.
        "tone": Tone.WAIT if holder.reclaimable else health.tone,
        "slices": held,
        "since": holder.since + ahead,
        "until": holder.until and holder.until + ahead,
        "waiting": bool(holder.waiting),
        "pod": holder.pod,
    }


def _owner(holder: Holder, me: str, ahead: int) -> Row:
    silent = holder.reclaimable
    times = {"silent_since": silent.silent_since + ahead, "kept_until": silent.kept_until + ahead} if silent else None
    return {
        "session": holder.session,
        "user": holder.user,
        "notebook": holder.notebook,
        "mine": bool(me) and holder.user == me,
        "reclaimable": times,
    }


def _job(job: Object, ahead: int = 0) -> Row:
    # Also of a service's JobSet, whose state is found in the same way.
    info, runnable = description.job_info(job), description.is_job(job)
    is_over = info.state in conditions.FINAL
    is_ending = not is_over and bool(job["metadata"].get("deletionTimestamp"))
    return {
        "id": f"{info.kind}/{info.namespace}/{info.name}",
        "kind": info.kind,
        "name": info.name,
        "namespace": info.namespace,
        "state": "Ending" if is_ending else info.state,
        "tone": Tone.WAIT if is_ending else conditions.TONES[info.state],
        "message": info.reason if is_over or info.state == conditions.SUSPENDED else "",
        "created": info.created + ahead,
        # A user's job, which can be suspended, resumed and deleted by its name.
        "runnable": runnable,
        "headless": runnable and info.headless,
        "queue": info.queue,
    }
