"""Derive the model of a service from the objects in its namespace.

The caller has the objects already, so a server that watches them sends no further requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pathways_jupyter.kube.objects import Object, created, true_condition
from pathways_jupyter.service import discovery, names, proxy_job, untrusted
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.model import Holder, Reclaimable, Service, Slice, SliceHost
from pathways_jupyter.service.namespacestate import PodIndex
from pathways_jupyter.service.placement import Placement
from pathways_jupyter.service.podstate import State

Derived = dict[str, tuple[object, Slice]]
"""Cache: slices as last derived, by the name of their worker Job, with the input that each was derived from."""


def derive(
    service: ServiceInfo,
    *,
    pods: PodIndex,
    jobs: Iterable[Object],
    placements: Mapping[str, Placement] | None = None,
    reclaimable: Mapping[str, Reclaimable] | None = None,
    cache: Derived | None = None,
) -> Service:
    """Derive the model of a service.

    Args:
      pods: Pods of its namespace; others are ignored.
      jobs: Jobs of its namespace; others than proxies of this service are ignored.
      placements: Slices of each proxy according to its log, by the name of its pod; missing ones are unknown. A pod
        that follows another under the same Job has slices of its own.
      reclaimable: The proxies of silent sessions, by the uid of their Job; see :mod:`pathways_jupyter.service.leases`.
      cache: Of a caller that derives the same namespace repeatedly: a slice whose pods and holder have not changed
        is not computed again.
    """
    read = placements or {}
    known = (_holder(service, job, pods, read, reclaimable or {}) for job in jobs)
    holders = tuple(sorted((each for each in known if each is not None), key=lambda each: (each.since, each.job)))
    placed = [(holder, read[holder.pod]) for holder in holders if holder.pod in read]
    lost = {job: (holder, False) for holder, placement in placed for job in placement.lost.values()}
    # A slice that another proxy has got meanwhile is lost no more.
    held = lost | {job: (holder, True) for holder, placement in placed for job in placement.slices.values()}
    head = pods.of_head(service.name)
    memory: Derived = {} if cache is None else cache
    return Service(
        name=service.name,
        namespace=service.namespace,
        address=service.address,
        instance_type=service.instance_type,
        queue=service.queue,
        head=_head_state(service, is_running=any(each.state is State.READY for each in head)),
        slices=tuple(_slice(service, index, pods, held, memory) for index in range(service.slices)),
        holders=holders,
        # A proxy without a pod holds nothing yet.
        certain=all(all(read[each.pod].slices.values()) if each.pod in read else not each.pod for each in holders),
        reason=service.ended
        or next((each.reason for each in head if each.state is not State.READY), "" if head else "no pod"),
    )


def outline(service: ServiceInfo, jobs: Iterable[Object]) -> Service:
    """Return the outline of `service` from the Jobs of its namespace alone, while its pods are still being listed.

    A slice has one Job but many pods, and the Job's status counts the pods that are ready. So a large cluster can be
    drawn long before all of its pods have arrived. Slices are ready or starting: only the pods show whether a slice is
    down, and what its nodes, reasons and holders are.
    """
    listed = list(jobs)
    ready = {
        str(job["metadata"]["name"]): untrusted.count((job.get("status") or {}).get("ready"), untrusted.MOST_HOSTS) or 0
        for job in listed
    }
    empty = derive(replace(service, slices=0), pods=PodIndex(), jobs=listed)
    number = service.hosts_per_slice
    hosts = {state: tuple(SliceHost(host, state) for host in range(number)) for state in (State.READY, State.STARTING)}
    slices = []
    for index in range(service.slices):
        worker_job = _worker_job(service, index)
        state = State.READY if ready.get(worker_job, 0) >= number else State.STARTING
        slices.append(Slice(index, state, hosts[state], worker_job))
    return replace(
        empty,
        slices=tuple(slices),
        head=_head_state(service, is_running=ready.get(f"{service.name}-{names.HEAD_JOB}-0", 0) > 0),
        certain=not empty.holders,
        reason="",
    )


def _head_state(service: ServiceInfo, *, is_running: bool) -> State:
    if is_running and not service.ended:
        return State.READY
    return State.DOWN if service.ended or service.started else State.STARTING


def _worker_job(service: ServiceInfo, index: int) -> str:
    return f"{service.name}-{service.worker_job}-{index}"


def _slice(
    service: ServiceInfo,
    index: int,
    pods: PodIndex,
    held: Mapping[str, tuple[Holder, bool]],
    cache: Derived,
) -> Slice:
    worker_job = _worker_job(service, index)
    workers = pods.of_slice(service.name, service.worker_job, index)
    holder, is_placed = held.get(worker_job, (None, True))
    source = (service.started, service.hosts_per_slice, workers, holder, is_placed)
    before = cache.get(worker_job)
    # Cheap: the workers of a slice are the same object until one of them has changed.
    if before is not None and before[0] == source:
        return before[1]
    # A pod and its replacement overlap for a moment; the newer one comes last.
    newest = {pod.part.host: pod for pod in workers if pod.part}
    absent = (State.DOWN, "no pod") if service.started else (State.STARTING, "not started yet")
    hosts = tuple(
        SliceHost(host, absent[0], reason=absent[1])
        if (pod := newest.get(host)) is None
        else SliceHost(host, pod.state, pod.name, pod.node, pod.reason, pod.restarts)
        for host in range(service.hosts_per_slice)
    )
    states = {host.state for host in hosts}
    state = next(each for each in (State.DOWN, State.STARTING, State.READY) if each in states)
    # For the session that has it, a slice whose workers start again is down, until its proxy has got it back.
    if holder is not None and (state is not State.READY or not is_placed):
        state = State.DOWN
    made = Slice(index, state, hosts, worker_job, holder)
    cache[worker_job] = source, made
    return made


def _holder(
    service: ServiceInfo,
    job: Object,
    pods: PodIndex,
    placements: Mapping[str, Placement],
    reclaimable: Mapping[str, Reclaimable],
) -> Holder | None:
    metadata, container = job["metadata"], proxy_job.container(job)
    if container is None or metadata.get("deletionTimestamp") or true_condition(job, "Complete", "Failed"):
        return None
    address = discovery.flags(container).get("resource_manager_address", "")
    if not discovery.same_address(address, service.address):
        return None
    instances, whose = proxy_job.instances(container), untrusted.SessionLabels.of(job)
    name = str(metadata["name"])
    own = pods.of_job(name)
    # A pod and the one that follows it overlap for a moment.
    pod_name = name if "orphan_of" in job else own[-1].name if own else ""
    placement = placements.get(pod_name)
    return Holder(
        session=whose.session,
        user=whose.user,
        notebook=whose.notebook,
        since=placement.since if placement is not None and placement.since else created(job),
        instances=instances,
        waiting=None if placement is None else placement.placed < sum(instances.values()),
        # What waits in a queue holds nothing.
        placed=0 if (job.get("spec") or {}).get("suspend") else None if placement is None else placement.placed,
        job=name,
        pod=pod_name,
        reclaimable=reclaimable.get(str(metadata.get("uid") or "")),
        until=proxy_job.deadline(job),
    )
