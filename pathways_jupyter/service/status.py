"""The picture of a service: its slices and their hosts, and which user holds what since when.

Everything that shows or explains a service uses this picture. :func:`picture` computes it from objects that the caller
already has, so that a server that watches sends no further requests; :func:`fetch` gets the objects first.

Nothing is guessed: a proxy whose log does not name its slices counts as the holder of a number of slices, but no slice
is shown as held by it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.errors import CapacityError, ClusterError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.credentials import parse_time
from pathways_jupyter.kube.objects import JOBS, PODS, Object
from pathways_jupyter.kube.pods import logs as pod_logs
from pathways_jupyter.service import discovery, names
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.naming import short_path
from pathways_jupyter.service.placement import Placement
from pathways_jupyter.service.podstate import State, pod_state, restarts

_LOG_SECONDS = 5.0


@dataclass(frozen=True)
class Holder:
    """A proxy (and so a session) that holds slices or waits for them.

    Attributes:
      session: Empty for proxies that this package did not make.
      user: Its user label; empty without one.
      notebook: Path of the notebook, or empty.
      since: When its Job was created, in seconds since the epoch.
      instances: Number of slices that it requested, per instance type.
      waiting: Whether it still waits for some of them; None when its log could not be read.
      placed: Number of slices that it has; None when its log could not be read.
      job: Name of its Job.
      pod: Name of its pod; empty before there is one.
    """

    session: str
    user: str
    notebook: str
    since: float
    instances: Mapping[str, int]
    waiting: bool | None
    placed: int | None
    job: str
    pod: str = ""

    def __str__(self) -> str:
        where = short_path(self.notebook) or (self.session and f"session {self.session}")
        return f"{self.user or self.job}{f' ({where})' if where else ''}"


@dataclass(frozen=True)
class Host:
    """A host of a slice.

    Attributes:
      index: Its index in the slice.
      pod: Its worker pod; empty while there is none.
      node: The node that the pod runs on.
      reason: Kubernetes' reason why it is not ready.
      restarts: How often its worker has been restarted.
    """

    index: int
    state: State
    pod: str = ""
    node: str = ""
    reason: str = ""
    restarts: int = 0


@dataclass(frozen=True)
class Slice:
    """A slice.

    Attributes:
      worker_job: The Job of its workers.
      held_by: Its holder; None when it is free, or when the holder is unknown (see :attr:`Service.certain`).
    """

    index: int
    state: State
    hosts: tuple[Host, ...]
    worker_job: str
    held_by: Holder | None = None


@dataclass(frozen=True)
class Service:
    """A service.

    Attributes:
      ready: Whether its resource manager runs.
      holders: All proxies that hold slices or wait for them, oldest first.
      certain: Whether the holder of every slice is known.
      reason: Kubernetes' reason why the resource manager is not ready.
    """

    name: str
    namespace: str
    address: str
    instance_type: str
    ready: bool
    slices: tuple[Slice, ...]
    holders: tuple[Holder, ...]
    certain: bool
    reason: str = ""

    @property
    def free(self) -> int:
        """Number of slices that are ready and, as far as is known, not held."""
        if self.certain:
            return sum(1 for each in self.slices if each.state is State.READY and each.held_by is None)
        usable = sum(1 for each in self.slices if each.state is State.READY)
        held = sum(_holding(each, self.instance_type) for each in self.holders)
        return max(0, usable - held)

    def available_to(self, job: str) -> int:
        """Return the number of slices that are ready and, as far as is known, free or held by the proxy `job`."""
        ready = [each for each in self.slices if each.state is State.READY]
        if self.certain:
            return sum(1 for each in ready if each.held_by is None or each.held_by.job == job)
        others = sum(_holding(each, self.instance_type) for each in self.holders if each.job != job)
        return max(0, len(ready) - others)


Drawn = dict[str, tuple[object, Slice]]
"""Cache: slices as last drawn, by the name of their worker Job, with the input that each was drawn from."""


def picture(
    service: ServiceInfo,
    *,
    pods: Iterable[Object],
    jobs: Iterable[Object],
    placements: Mapping[str, Placement] | None = None,
    drawn: Drawn | None = None,
) -> Service:
    """Compute the picture of a service.

    Args:
      pods: Pods of its namespace; others are ignored.
      jobs: Jobs of its namespace; others than proxies of this service are ignored.
      placements: Slices of each proxy according to its log, by the name of its Job; missing ones are unknown.
      drawn: Cache of a caller that draws the same namespace repeatedly: a slice whose pods and holder have not changed
        is not computed again.
    """
    read = placements or {}
    listed = list(pods)
    own = [pod for pod in listed if _labels(pod).get(names.JOBSET_NAME_LABEL) == service.name]
    holders = _holders(service, jobs, listed, read)
    by_worker_job = {
        worker_job: holder
        for holder in holders
        if holder.job in read
        for worker_job in read[holder.job].slices.values()
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
        certain=all(_is_certain(holder, read.get(holder.job)) for holder in holders),
        reason=service.ended
        or next((reason for state, reason in states if state is not State.READY), "" if states else "no pod"),
    )


async def fetch(client: Client, namespace: str, wanted: str = "", *, logs: bool = True) -> tuple[Service, ...]:
    """Get the pictures of the services of a namespace.

    Args:
      namespace: Empty for all namespaces.
      wanted: Only the service of this name or address.
      logs: Read the proxies' logs, to learn which proxy holds which slice.

    Raises:
      ServiceError: The service does not exist, or the cluster has no JobSets.
      ApiError: Reading JobSets, pods or Jobs is forbidden.
      ClusterError: The server could not be reached.
    """
    namespace = discovery.name_of(wanted)[1] or namespace
    services, pods, jobs = await asyncio.gather(
        _services(client, namespace, wanted),
        objects.list_(client, PODS, namespace=namespace),
        objects.list_(client, JOBS, namespace=namespace),
    )
    drawn = [_draw(each, pods.items, jobs.items, {}) for each in services]
    proxies = {(each.namespace, holder.job): holder.pod for each in drawn for holder in each.holders if holder.pod}
    if not logs or not proxies:
        return tuple(drawn)
    read = await asyncio.gather(*(read_placement(client, place, pod) for (place, _), pod in proxies.items()))
    known = {key: placement for key, placement in zip(proxies, read, strict=True) if placement is not None}
    return tuple(_draw(each, pods.items, jobs.items, known) for each in services)


async def read_placement(client: Client, namespace: str, pod: str) -> Placement | None:
    """Read a proxy's slices from its pod's log; None when it cannot be read."""
    placement = Placement()
    try:
        async with asyncio.timeout(_LOG_SECONDS):
            async for line in pod_logs(client, pod, namespace=namespace, container=names.PROXY_CONTAINER):
                placement.feed(line)
    except (ClusterError, TimeoutError):
        return None
    return placement


def capacity_error(
    service: Service, instances: Mapping[str, int], *, waited: float = 0.0, now: float | None = None
) -> CapacityError:
    """Return the error for a request that `service` cannot satisfy now; it lists the holders.

    Args:
      waited: Seconds that the session has waited for the slices.
    """
    wanted = sum(instances.values())
    held = [each for each in service.holders if each.placed != 0]
    usable = sum(1 for each in service.slices if each.state is State.READY)
    found = f"{usable if usable < wanted else service.free} of {len(service.slices)} slices of {service.name} are"
    state = f"{found} {'ready' if usable < wanted else 'free'}, and {wanted} {'is' if wanted == 1 else 'are'} wanted"
    holders = "; ".join(_summary(each, time.time() if now is None else now) for each in held)
    return CapacityError(
        f"{state}{f': {holders}' if holders else ''}.",
        hint=f"Waited {waited:.0f} s for them. --wait waits without end; or ask for fewer."
        if waited
        else "Add --wait to get them as soon as they are free, or ask for fewer.",
    )


def _summary(holder: Holder, now: float) -> str:
    minutes = max(0, int(now - holder.since)) // 60
    since = f"{minutes} min" if minutes else "less than a minute"
    if minutes >= 60:
        since = f"{minutes // 60} h {minutes % 60} min"
    count = holder.placed if holder.placed else sum(holder.instances.values())
    return f"{holder} holds {count} for {since}"


async def _services(client: Client, namespace: str, wanted: str) -> tuple[ServiceInfo, ...]:
    if wanted:
        return (await discovery.find(client, namespace, wanted),)
    return await discovery.list_services(client, namespace)


def _draw(
    service: ServiceInfo,
    pods: Iterable[Object],
    jobs: Iterable[Object],
    placements: Mapping[tuple[str, str], Placement],
) -> Service:
    here = service.namespace
    return picture(
        service,
        pods=[pod for pod in pods if pod["metadata"].get("namespace") == here],
        jobs=[job for job in jobs if job["metadata"].get("namespace") == here],
        placements={job: placement for (namespace, job), placement in placements.items() if namespace == here},
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
        if place not in workers or _created(workers[place]) <= _created(pod):
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
    service: ServiceInfo, jobs: Iterable[Object], pods: list[Object], placements: Mapping[str, Placement]
) -> tuple[Holder, ...]:
    pod_of: dict[str, str] = {}
    for pod in pods:
        labels = _labels(pod)
        if job := labels.get(names.JOB_NAME_LABEL) or labels.get("job-name"):
            pod_of[str(job)] = str(pod["metadata"]["name"])
    found = (_holder(service, job, pod_of, placements) for job in jobs)
    return tuple(sorted((each for each in found if each is not None), key=lambda each: (each.since, each.job)))


def _holder(
    service: ServiceInfo, job: Object, pod_of: Mapping[str, str], placements: Mapping[str, Placement]
) -> Holder | None:
    metadata, spec = job["metadata"], job.get("spec") or {}
    pod = (spec.get("template") or {}).get("spec") or {}
    container = next((each for each in pod.get("containers") or () if each.get("name") == names.PROXY_CONTAINER), None)
    if container is None or metadata.get("deletionTimestamp") or _is_finished(job):
        return None
    said = discovery.flags(container)
    if not discovery.same_address(said.get("resource_manager_address", ""), service.address):
        return None
    instances: dict[str, int] = {}
    for instance in filter(None, said.get("virtual_slices", "").split(",")):
        instances[instance] = instances.get(instance, 0) + 1
    name = str(metadata["name"])
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    placement = placements.get(name)
    return Holder(
        session=str(labels.get(names.SESSION_LABEL, "")),
        user=str(labels.get(names.USER_LABEL, "")),
        notebook=str(annotations.get(names.NOTEBOOK_ANNOTATION, "")),
        since=_created(job),
        instances=instances,
        waiting=None if placement is None else placement.placed < sum(instances.values()),
        placed=None if placement is None else placement.placed,
        job=name,
        pod=pod_of.get(name, ""),
    )


def _holding(holder: Holder, instance_type: str) -> int:
    return holder.instances.get(instance_type, 0) if holder.placed is None else holder.placed


def _is_certain(holder: Holder, placement: Placement | None) -> bool:
    # A proxy without a pod holds nothing yet.
    return not holder.pod if placement is None else all(placement.slices.values())


def _is_finished(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each.get("type") in {"Complete", "Failed"} and each.get("status") == "True" for each in conditions)


def _labels(pod: Object) -> Mapping[str, Any]:
    return pod["metadata"].get("labels") or {}


def _host_index(pod: Object) -> int:
    metadata = pod["metadata"]
    given = _labels(pod).get(names.POD_INDEX_LABEL) or (metadata.get("annotations") or {}).get(names.POD_INDEX_LABEL)
    text = str(given or "")
    return int(text) if text.isdecimal() else 0


def _created(item: Object) -> float:
    return parse_time(str(item["metadata"].get("creationTimestamp") or "1970-01-01T00:00:00Z"))
