"""The rows of JSON values that slice map and sidebar show, and the differences between two sets of them.

The TypeScript types are in labextension/src/models/wire.ts: change both together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pathways_jupyter import tpu
from pathways_jupyter.errors import ConfigError
from pathways_jupyter.kube.objects import Object, created
from pathways_jupyter.service import names
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.images import Image
from pathways_jupyter.service.model import Holder, Reclaimable, Service, Slice
from pathways_jupyter.service.pathwaysjob import description, expansion, fields
from pathways_jupyter.service.podstate import State

Row = dict[str, Any]
Tables = dict[str, dict[str, Row]]
"""Rows by table (``slices``, ``services``, ``proxies``, ``jobs``) and id."""

EMPTY: Tables = {"slices": {}, "services": {}, "proxies": {}, "jobs": {}}


def tables(
    services: Sequence[tuple[ServiceInfo, Service]],
    *,
    heads: Mapping[str, str],
    me: str,
    jobs: Iterable[Object],
) -> Tables:
    """Return the tables of a cluster.

    Args:
      services: The description and the picture of each service.
      heads: Name of the resource manager's pod, by service.
      me: The user label of the user who looks at the tables.
      jobs: JobSets, PathwaysJobs and proxy Jobs.
    """
    drawn: Tables = {name: {} for name in EMPTY}
    for info, service in services:
        place = f"{service.namespace}/{service.name}"
        chips = sum(_chips(service.instance_type))
        drawn["services"][place] = _service(place, info, service, heads.get(service.name, ""), chips)
        drawn["slices"] |= {row["id"]: row for row in slice_rows(service, me=me)}
        for holder in service.holders:
            drawn["proxies"][f"{service.namespace}/{holder.job}"] = _proxy(service, holder, me)
    for job in jobs:
        row = _job(job)
        drawn["jobs"][row["id"]] = row
    return drawn


def slice_rows(service: Service, *, me: str) -> list[Row]:
    """Return the rows of a service's slices; `me` is the user label of the user who looks at them."""
    place = f"{service.namespace}/{service.name}"
    chips = _chips(service.instance_type)
    return [_slice(f"{place}/{each.index}", service, each, chips, me) for each in service.slices]


def difference(before: Tables, now: Tables) -> tuple[dict[str, list[Row]], dict[str, list[str]]]:
    """Return the rows to put and the ids to drop, by table, to get from `before` to `now`."""
    put: dict[str, list[Row]] = {}
    drop: dict[str, list[str]] = {}
    for name, rows in now.items():
        former = before.get(name, {})
        changed = [row for key, row in rows.items() if former.get(key) != row]
        gone = [key for key in former if key not in rows]
        put |= {name: changed} if changed else {}
        drop |= {name: gone} if gone else {}
    return put, drop


def _service(place: str, info: ServiceInfo, service: Service, head: str, chips: int) -> Row:
    return {
        "id": place,
        "name": service.name,
        "namespace": service.namespace,
        "address": service.address,
        "version": Image.parse(info.server_image).tag,
        "health": State.READY if service.ready else State.STARTING if not info.started else State.DOWN,
        "pod": head,
        "embedded": bool(info.embedded),
        "capacity": [
            {
                "instance_type": service.instance_type,
                "chips": chips,
                "total": len(service.slices),
                "ready": sum(1 for each in service.slices if each.state is State.READY),
                "free": service.free,
                "reclaimable": service.reclaimable,
            }
        ]
        if service.instance_type
        else [],
    }


def _slice(key: str, service: Service, each: Slice, chips: Sequence[int], me: str) -> Row:
    holder = each.held_by
    return {
        "id": key,
        "service": service.name,
        "number": each.index,
        "instance_type": service.instance_type,
        "health": each.state,
        "hosts": [
            {
                "pod": host.pod,
                "node": host.node,
                "health": host.state,
                "chips": chips[host.index] if host.index < len(chips) else 1,
                "reason": host.reason,
            }
            for host in each.hosts
        ],
        "holder": {
            "session": holder.session,
            "user": holder.user,
            "notebook": holder.notebook,
            "since": holder.since,
            "mine": bool(me) and holder.user == me,
            "reclaimable": _silence(holder.reclaimable),
        }
        if holder
        else None,
    }


def _proxy(service: Service, holder: Holder, me: str) -> Row:
    placed = holder.placed
    health = State.STARTING if not holder.pod or placed == 0 or placed is None else State.READY
    return {
        "id": f"{service.namespace}/{holder.job}",
        "session": holder.session,
        "user": holder.user,
        "service": service.name,
        "notebook": holder.notebook,
        "health": health,
        "slices": [str(each.index) for each in service.slices if each.held_by == holder],
        "created": holder.since,
        "until": holder.until,
        "waiting": bool(holder.waiting),
        "mine": bool(me) and holder.user == me,
        "pod": holder.pod,
        "reclaimable": _silence(holder.reclaimable),
    }


def _silence(found: Reclaimable | None) -> Row | None:
    return None if found is None else {"silent_since": found.silent_since, "kept_until": found.kept_until}


def _job(job: Object) -> Row:
    metadata = job["metadata"]
    kind = str(job.get("kind") or "Job")
    is_ours = (metadata.get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY
    state, message = _job_state(job)
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
    runnable = _is_runnable(job)
    return {
        "id": f"{kind}/{namespace}/{name}",
        "kind": "Proxy" if kind == "Job" and is_ours else kind,
        "name": name,
        "namespace": namespace,
        "state": state,
        "message": message,
        "created": created(job),
        "runnable": runnable,
        "headless": runnable and description.is_headless(job),
    }


def _job_state(job: Object) -> tuple[str, str]:
    """Return one word for the state of any of the three kinds, and its message."""
    status = job.get("status") or {}
    holds = {each.get("type"): each for each in status.get("conditions") or () if each.get("status") == "True"}
    for kind, word in (
        ("Failed", "Failed"),
        ("Completed", "Completed"),
        ("Complete", "Completed"),
        ("Suspended", "Suspended"),
    ):
        if kind in holds:
            return word, str(holds[kind].get("message") or "")
    if job["metadata"].get("deletionTimestamp"):
        return "Ending", ""
    running = "Running" in holds or "StartupPolicyCompleted" in holds or bool(status.get("ready"))
    return ("Running" if running else "Pending"), ""


def _is_runnable(job: Object) -> bool:
    """Whether it is a user's job, which can be suspended, resumed and deleted by its name."""
    metadata = job["metadata"]
    # A JobSet with the label and without an owner was expanded by a client, on a cluster without the PathwaysJob API.
    expanded = expansion.JOB_LABEL in (metadata.get("labels") or {}) and not metadata.get("ownerReferences")
    return job.get("kind") == fields.KIND or expanded


def _chips(instance_type: str) -> list[int]:
    """Return the chips of each host of a slice; empty for types that are not in the catalogue."""
    try:
        parsed = tpu.parse_instance_type(instance_type)
    except ConfigError:
        return []
    return [parsed.chips_per_host] * parsed.hosts
