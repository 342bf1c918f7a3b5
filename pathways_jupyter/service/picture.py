"""Compute the picture of a service from the objects in its namespace.

The caller has the objects already, so a server that watches them sends no further requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pathways_jupyter.kube.objects import Object, created, true_condition
from pathways_jupyter.service import discovery, names, proxy_job
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.model import Holder, Host, Reclaimable, Service, Slice
from pathways_jupyter.service.placement import Placement
from pathways_jupyter.service.podstate import State, pod_state, restarts

Drawn = dict[str, tuple[object, Slice]]
"""Cache: slices as last drawn, by the name of their worker Job, with the input that each was drawn from."""


def picture(
    service: ServiceInfo,
    *,
    pods: Iterable[Object],
    jobs: Iterable[Object],
    placements: Mapping[str, Placement] | None = None,
    reclaimable: Mapping[str, Reclaimable] | None = None,
    drawn: Drawn | None = None,
) -> Service:
    """Compute the picture of a service.

    Args:
      pods: Pods of its namespace; others are ignored.
      jobs: Jobs of its namespace; others than proxies of this service are ignored.
      placements: Slices of each proxy according to its log, by the name of its pod; missing ones are unknown. A pod
        that follows another under the same Job has slices of its own.
      reclaimable: The proxies of silent sessions, by the uid of their Job; see :mod:`pathways_jupyter.service.leases`.
      drawn: Cache of a caller that draws the same namespace repeatedly: a slice whose pods and holder have not changed
        is not computed again.
    """
    read = placements or {}
    listed = list(pods)
    own = [pod for pod in listed if _labels(pod).get(names.JOBSET_NAME_LABEL) == service.name]
    holders = _holders(service, jobs, listed, read, reclaimable or {})
    by_worker_job = {
        worker_job: holder
        for holder in holders
        if holder.pod in read
        for worker_job in read[holder.pod].slices.values()
    }
    head = [pod for pod in own if _labels(pod).get(names.REPLICATED_JOB_LABEL) == names.HEAD_JOB]
    states = [pod_state(pod) for pod in head]
    workers = _workers(service, own)
    memory: Drawn = {} if drawn is None else drawn
    return Service(
        name=service.name,
        namespace=service.namespace,
        address=service.address,
        instance_type=service.instance_type,
        ready=not service.ended and any(state is State.READY for state, _ in states),
        slices=tuple(_slice(service, index, workers, by_worker_job, memory) for index in range(service.slices)),
        holders=holders,
        certain=all(_is_certain(holder, read.get(holder.pod)) for holder in holders),
        reason=service.ended
        or next((reason for state, reason in states if state is not State.READY), "" if states else "no pod"),
    )


def outline(service: ServiceInfo, jobs: Iterable[Object]) -> Service:
    """Return the outline of `service` from the Jobs of its namespace alone, while its pods are still being listed.

    A slice has one Job but many pods, and the Job's status counts the pods that are ready. So a large cluster can be
    drawn long before all of its pods have arrived. Slices are ready or starting: only the pods show whether a slice is
    down, and what its nodes, reasons and holders are.
    """
    listed = list(jobs)
    ready = {str(job["metadata"]["name"]): int((job.get("status") or {}).get("ready") or 0) for job in listed}
    drawn = picture(service, pods=(), jobs=listed)
    return replace(
        drawn,
        slices=tuple(_outlined(each, ready.get(each.worker_job, 0)) for each in drawn.slices),
        ready=ready.get(f"{service.name}-{names.HEAD_JOB}-0", 0) > 0,
        certain=not drawn.holders,
        reason="",
    )


def _workers(service: ServiceInfo, pods: Iterable[Object]) -> dict[tuple[int, int], Object]:
    """Return the worker pods by the indices of their slice and host."""
    workers: dict[tuple[int, int], Object] = {}
    for pod in pods:
        labels = _labels(pod)
        index = str(labels.get(names.JOB_INDEX_LABEL, ""))
        if labels.get(names.REPLICATED_JOB_LABEL) != service.worker_job or not index.isdecimal():
            continue
        place = int(index), _host_index(pod)
        # A pod and its replacement overlap for a moment; use the newer one.
        if place not in workers or created(workers[place]) <= created(pod):
            workers[place] = pod
    return workers


def _slice(
    service: ServiceInfo,
    index: int,
    workers: Mapping[tuple[int, int], Object],
    holders: Mapping[str, Holder],
    drawn: Drawn,
) -> Slice:
    worker_job = f"{service.name}-{service.worker_job}-{index}"
    pods = tuple(workers.get((index, host)) for host in range(service.hosts_per_slice))
    source = (service.started, pods, holders.get(worker_job))
    before = drawn.get(worker_job)
    # Cheap: the watch replaces changed pods and never modifies them, so equal pods are nearly always identical objects.
    if before is not None and before[0] == source:
        return before[1]
    hosts = tuple(_host(service, host, pod) for host, pod in enumerate(pods))
    states = {host.state for host in hosts}
    state = next(each for each in (State.DOWN, State.STARTING, State.READY) if each in states)
    made = Slice(index, state, hosts, worker_job, holders.get(worker_job))
    drawn[worker_job] = source, made
    return made


def _host(service: ServiceInfo, index: int, pod: Object | None) -> Host:
    if pod is None:
        missing = State.DOWN if service.started else State.STARTING
        return Host(index, missing, reason="no pod" if service.started else "not started yet")
    state, reason = pod_state(pod)
    return Host(
        index=index,
        state=state,
        pod=str(pod["metadata"]["name"]),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        reason=reason,
        restarts=restarts(pod),
    )


def _holders(
    service: ServiceInfo,
    jobs: Iterable[Object],
    pods: list[Object],
    placements: Mapping[str, Placement],
    reclaimable: Mapping[str, Reclaimable],
) -> tuple[Holder, ...]:
    pod_of: dict[str, str] = {}
    # The newest last: a pod and the one that follows it overlap for a moment.
    for pod in sorted(pods, key=created):
        labels = _labels(pod)
        if job := labels.get(names.JOB_NAME_LABEL) or labels.get("job-name"):
            pod_of[str(job)] = str(pod["metadata"]["name"])
    found = (_holder(service, job, pod_of, placements, reclaimable) for job in jobs)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: (each.since, each.job)))


def _holder(
    service: ServiceInfo,
    job: Object,
    pod_of: Mapping[str, str],
    placements: Mapping[str, Placement],
    reclaimable: Mapping[str, Reclaimable],
) -> Holder | None:
    metadata, spec = job["metadata"], job.get("spec") or {}
    pod = (spec.get("template") or {}).get("spec") or {}
    container = next((each for each in pod.get("containers") or () if each.get("name") == names.PROXY_CONTAINER), None)
    if container is None or metadata.get("deletionTimestamp") or true_condition(job, "Complete", "Failed"):
        return None
    said = discovery.flags(container)
    if not discovery.same_address(said.get("resource_manager_address", ""), service.address):
        return None
    instances: dict[str, int] = {}
    for instance in filter(None, said.get("virtual_slices", "").split(",")):
        instances[instance] = instances.get(instance, 0) + 1
    name = str(metadata["name"])
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    pod_name = pod_of.get(name, "")
    placement = placements.get(pod_name)
    return Holder(
        session=str(labels.get(names.SESSION_LABEL, "")),
        user=str(labels.get(names.USER_LABEL, "")),
        notebook=str(annotations.get(names.NOTEBOOK_ANNOTATION, "")),
        since=created(job),
        instances=instances,
        waiting=None if placement is None else placement.placed < sum(instances.values()),
        placed=None if placement is None else placement.placed,
        job=name,
        pod=pod_name,
        reclaimable=reclaimable.get(str(metadata.get("uid") or "")),
        until=proxy_job.deadline(job),
    )


def _outlined(each: Slice, ready: int) -> Slice:
    state = State.READY if ready >= len(each.hosts) else State.STARTING
    return replace(each, state=state, hosts=tuple(Host(host.index, state) for host in each.hosts))


def _is_certain(holder: Holder, placement: Placement | None) -> bool:
    # A proxy without a pod holds nothing yet.
    return not holder.pod if placement is None else all(placement.slices.values())


def _labels(pod: Object) -> Mapping[str, Any]:
    return pod["metadata"].get("labels") or {}


def _host_index(pod: Object) -> int:
    metadata = pod["metadata"]
    given = _labels(pod).get(names.POD_INDEX_LABEL) or (metadata.get("annotations") or {}).get(names.POD_INDEX_LABEL)
    text = str(given or "")
    return int(text) if text.isdecimal() else 0
