"""The state of services now: get their objects and derive their model; and the error when too little is free."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ApiError, CapacityError, ClusterError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import count, ranges
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, JOBSETS, NAMESPACES, PODS
from pathways_jupyter.kube.pods import logs as pod_logs
from pathways_jupyter.service import discovery, leases, names, proxy_job
from pathways_jupyter.service.derivation import derive
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.images import of_image
from pathways_jupyter.service.jobs import find as find_job
from pathways_jupyter.service.model import Holder, Service
from pathways_jupyter.service.namespacestate import PodIndex
from pathways_jupyter.service.placement import MOST_LOGS, Placement
from pathways_jupyter.service.podstate import State

_LOG_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Overview(ServiceInfo):
    """A service as its JobSet describes it, and as it is now.

    Attributes:
      state: Ready when a session can use at least one of its slices.
      ready: Number of slices that are ready.
      in_use: Number of slices that proxies hold.
      free: Number of slices that are ready and not held.
      users: The holders, each with user and notebook.
      jax: JAX version in the image's tag; empty where it names none.
      reason: Why it is not ready; empty when it is.
      clock_ahead: As a model's.
    """

    state: State
    ready: int
    in_use: int
    free: int
    users: tuple[str, ...]
    jax: str
    reason: str
    clock_ahead: int = 0

    @classmethod
    def of(cls, service: ServiceInfo, model: Service) -> Overview:
        """Return the overview of a service."""
        return cls(
            **vars(service),
            state=model.state,
            ready=model.ready,
            in_use=model.in_use,
            free=model.free,
            users=tuple(str(each) for each in model.holders if each.placed != 0),
            jax=of_image(service.image).jax,
            reason=model.problem,
            clock_ahead=model.clock_ahead,
        )


async def fetch(client: Client, namespace: str, name: str = "", *, logs: bool = True) -> tuple[Service, ...]:
    """Get the models of the services of a namespace.

    Args:
      namespace: Empty for all namespaces.
      name: Only the service of this name or address.
      logs: Read the proxies' logs and Leases, to learn which proxy holds which slice, and which sessions are silent.

    Raises:
      ServiceError: The service does not exist, or the cluster has no JobSets.
      ApiError: Reading JobSets, pods or Jobs is forbidden.
      ClusterError: The server could not be reached.
    """
    pairs = await fetch_with_services(client, namespace, name, logs=logs)
    return tuple(model for _, model in pairs)


async def fetch_with_services(
    client: Client, namespace: str, name: str = "", *, logs: bool = True
) -> tuple[tuple[ServiceInfo, Service], ...]:
    """Like :func:`fetch`, with the description of each service."""
    namespace = names.service_of(name)[1] or namespace

    async def find() -> tuple[ServiceInfo, ...]:
        return (
            (await discovery.find(client, namespace, name),)
            if name
            else await discovery.list_services(client, namespace)
        )

    return await derive_services(client, namespace, find(), logs=logs)


async def derive_services(
    client: Client, namespace: str, finding: Coroutine[Any, Any, tuple[ServiceInfo, ...]], *, logs: bool = True
) -> tuple[tuple[ServiceInfo, Service], ...]:
    """Derive the services that `finding` returns, while it reads their JobSets; raises as :func:`fetch` does."""
    async with tasks.group() as group:
        listing = group.create_task(finding)
        pods = group.create_task(objects.list_(client, PODS, namespace=namespace))
        jobs = group.create_task(objects.list_(client, JOBS, namespace=namespace))
        silent = group.create_task(leases.fetch_reclaimable(client, namespace)) if logs else None
    orphans = (proxy_job.of_orphan(each) for each in pods.result().items)
    services, listed = listing.result(), [*jobs.result().items, *(each for each in orphans if each is not None)]
    indices: dict[str, PodIndex] = {}
    for pod in pods.result().items:
        indices.setdefault(str(pod["metadata"].get("namespace") or ""), PodIndex()).put(pod)

    def derived(placements: Mapping[tuple[str, str], Placement]) -> list[Service]:
        return [
            derive(
                each,
                pods=indices.get(each.namespace, PodIndex()),
                jobs=[job for job in listed if job["metadata"].get("namespace") == each.namespace],
                placements={pod: placement for (at, pod), placement in placements.items() if at == each.namespace},
                reclaimable=silent.result() if silent is not None else {},
            )
            for each in services
        ]

    # Twice: which proxies there are, and so which logs to read, is known from the first models.
    models = derived({})
    proxies = {(each.namespace, holder.pod) for each in models for holder in each.holders if holder.pod}
    # With one log unknown, slices are counted and not located, whatever the others say.
    if logs and 0 < len(proxies) <= MOST_LOGS:
        async with tasks.group() as group:
            reading = {proxy: group.create_task(_read_placement(client, *proxy)) for proxy in proxies}
        models = derived(
            {proxy: placement for proxy, task in reading.items() if (placement := task.result()) is not None}
        )
    return tuple(
        (service, replace(model, clock_ahead=client.clock_ahead))
        for service, model in zip(services, models, strict=True)
    )


async def overviews(client: Client, namespace: str = "", name: str = "") -> tuple[Overview, ...]:
    """Return the services of a namespace; of all namespaces that may be read when `namespace` is empty.

    Args:
      name: Only the service of this name or address, in `namespace` or the context's.

    Raises:
      ServiceError: The service does not exist, or the cluster has no JobSets.
      ApiError: Reading services is forbidden, also in the context's own namespace.
      ClusterError: The server could not be reached.
    """
    if name:
        within = names.service_of(name)[1] or namespace or client.namespace
        services = await fetch_with_services(client, within, name)
    elif namespace:
        services = await fetch_with_services(client, namespace)
    else:
        services = await _readable(client)
    return tuple(Overview.of(*pair) for pair in services)


async def _readable(client: Client) -> tuple[tuple[ServiceInfo, Service], ...]:
    """Return the services of all namespaces if they may be read at once; otherwise of each in which they may."""
    try:
        return await fetch_with_services(client, "")
    except ApiError as error:
        if error.status != 403:
            raise

    async def names_of_namespaces() -> list[str]:
        # Forbidden in the usual case of a plain user: a Role in one namespace.
        with contextlib.suppress(ApiError):
            return [str(each["metadata"]["name"]) for each in (await objects.list_(client, NAMESPACES)).items]
        return []

    async def of(namespace: str) -> tuple[tuple[ServiceInfo, Service], ...] | ApiError:
        try:
            return await fetch_with_services(client, namespace)
        except ApiError as error:
            if error.status != 403:
                raise
            return error

    others, own = await asyncio.gather(names_of_namespaces(), of(client.namespace))
    rest = await asyncio.gather(*(of(each) for each in others if each != client.namespace))
    readable = [each for each in (own, *rest) if not isinstance(each, ApiError)]
    if not readable and isinstance(own, ApiError):
        raise own
    pairs = [pair for each in readable for pair in each]
    return tuple(sorted(pairs, key=lambda pair: (pair[0].namespace, pair[0].name)))


async def fetch_job(client: Client, namespace: str, name: str) -> Service:
    """Get the model of the slices of a job, which holds all of them itself.

    Raises:
      ServiceError: There is no such job, or it has no slices now.
      ApiError: Reading JobSets or pods is forbidden.
      ClusterError: The server could not be reached.
    """
    async with tasks.group() as group:
        reading = group.create_task(objects.find(client, JOBSETS, name, namespace=namespace))
        labels = f"{names.JOBSET_NAME_LABEL}={name}"
        pods = group.create_task(objects.list_(client, PODS, namespace=namespace, labels=labels))
    jobset = reading.result()
    info = discovery.describe(jobset, own=True) if jobset is not None else None
    if info is None:
        # A queued one has no JobSet yet. Who may not read jobs learns that it has no slices, and no more.
        with contextlib.suppress(ApiError):
            await find_job(client, name, namespace=namespace)
        raise ServiceError(f"Job {name} has no slices now.", hint=advice("{job_show:{name}} says why.", name=name))
    model = derive(info, pods=PodIndex(pods.result().items), jobs=())
    instances_held = {info.instance_type: info.slices}
    holder = Holder("", "", "", info.created, instances_held, False, info.slices, f"job {name}")
    held = tuple(replace(each, held_by=holder) for each in model.slices)
    return replace(model, slices=held, holders=(holder,), certain=True, clock_ahead=client.clock_ahead)


async def _read_placement(client: Client, namespace: str, pod: str) -> Placement | None:
    """Read a proxy's slices from its pod's log; None when it cannot be read."""
    placement = Placement()
    try:
        async with asyncio.timeout(_LOG_SECONDS):
            async for line in pod_logs(
                client, pod, namespace=namespace, container=names.PROXY_CONTAINER, timestamps=True
            ):
                placement.feed(line)
    except (ClusterError, TimeoutError):
        return None
    return placement


def capacity_error(service: Service, instances: Mapping[str, int], *, waited: float = 0.0) -> CapacityError:
    """Return the error for a request that `service` cannot satisfy now; it lists the holders.

    Args:
      waited: Seconds that the session has waited for the slices.
    """
    needed, there = sum(instances.values()), len(service.slices)
    usable, word = (service.ready, "ready") if service.ready < needed else (service.free, "free")
    message = (
        f"{usable} of {count(there, 'slice')} of {service.name} {'is' if there == 1 else 'are'} {word}, "
        f"and {count(needed, 'is wanted', 'are wanted')}"
    )
    held = [each for each in service.holders if each.placed != 0]
    reasons = [_summary(each, time.time() - service.clock_ahead) for each in held]
    for state in (State.DOWN, State.STARTING):
        if numbers := [each.index for each in service.slices if each.state is state]:
            noun, verb = ("slice", "is") if len(numbers) == 1 else ("slices", "are")
            reasons.append(f"{noun} {ranges(numbers)} {verb} {state}")
    hint = (
        advice("Waited {seconds} s for them. {wait} waits without end; or ask for fewer.", seconds=f"{waited:.0f}")
        if waited
        else advice("Add {wait} to get them as soon as they are free, or ask for fewer.")
    )
    return CapacityError(f"{message}: {'; '.join(reasons)}." if reasons else f"{message}.", hint=hint)


def _summary(holder: Holder, now: float) -> str:
    minutes = max(0, int(now - holder.since)) // 60
    since = f"{minutes} min" if minutes else "less than a minute"
    if minutes >= 60:
        since = f"{minutes // 60} h {minutes % 60} min"
    return f"{holder} holds {holder.placed or sum(holder.instances.values())} for {since}"
