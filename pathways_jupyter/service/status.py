"""The state of services now: get their objects and draw the picture; and the error when too little is free."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping

from pathways_jupyter.errors import CapacityError, ClusterError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, PODS, Object
from pathways_jupyter.kube.pods import logs as pod_logs
from pathways_jupyter.service import discovery, names
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.model import Holder, Service
from pathways_jupyter.service.picture import picture
from pathways_jupyter.service.placement import Placement
from pathways_jupyter.service.podstate import State

_LOG_SECONDS = 5.0


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
    pairs = await fetch_with_services(client, namespace, wanted, logs=logs)
    return tuple(picture for _, picture in pairs)


async def fetch_with_services(
    client: Client, namespace: str, wanted: str = "", *, logs: bool = True
) -> tuple[tuple[ServiceInfo, Service], ...]:
    """Like :func:`fetch`, with the description of each service."""
    namespace = discovery.name_of(wanted)[1] or namespace
    services, pods, jobs = await asyncio.gather(
        _services(client, namespace, wanted),
        objects.list_(client, PODS, namespace=namespace),
        objects.list_(client, JOBS, namespace=namespace),
    )
    drawn = [_draw(each, pods.items, jobs.items, {}) for each in services]
    proxies = {(each.namespace, holder.job): holder.pod for each in drawn for holder in each.holders if holder.pod}
    if logs and proxies:
        read = await asyncio.gather(*(read_placement(client, place, pod) for (place, _), pod in proxies.items()))
        known = {key: placement for key, placement in zip(proxies, read, strict=True) if placement is not None}
        drawn = [_draw(each, pods.items, jobs.items, known) for each in services]
    return tuple(zip(services, drawn, strict=True))


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
