"""The services that a person may see: address, slices and their users, image, age."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, JOBSETS, NAMESPACES, PODS
from pathways_jupyter.service import discovery, names, status
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.images import of_image
from pathways_jupyter.service.model import Service
from pathways_jupyter.service.podstate import State


@dataclass(frozen=True)
class Overview:
    """One service.

    Attributes:
      address: ``host:port`` of its resource manager.
      state: ``ready``, ``starting`` or ``down``; ready when a session can use at least one of its slices.
      ready: Number of slices that are ready.
      in_use: Number of slices that proxies hold.
      users: The holders, each with user and notebook.
      image: Image of resource manager and workers.
      jax: JAX version in the image's tag; empty where it names none.
      created: When it was deployed, in seconds since the epoch.
      reason: Why it is not ready.
    """

    name: str
    namespace: str
    address: str
    instance_type: str
    hosts_per_slice: int
    state: State
    slices: int
    ready: int
    in_use: int
    free: int
    users: tuple[str, ...]
    image: str
    sidecar_image: str
    jax: str
    created: float
    reason: str = ""


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
        places: Sequence[str] = (names.service_of(name)[1] or namespace or client.namespace,)
    else:
        places = (namespace,) if namespace else await _readable(client)
    found = await asyncio.gather(*(status.fetch_with_services(client, place, name) for place in places))
    return tuple(_overview(*pair) for pairs in found for pair in pairs)


def _overview(service: ServiceInfo, picture: Service) -> Overview:
    return Overview(
        name=service.name,
        namespace=service.namespace,
        address=service.address,
        instance_type=service.instance_type,
        hosts_per_slice=service.hosts_per_slice,
        state=picture.state,
        slices=len(picture.slices),
        ready=picture.ready,
        in_use=picture.in_use,
        free=picture.free,
        users=tuple(str(each) for each in picture.holders if each.placed != 0),
        image=service.server_image,
        sidecar_image=service.sidecar_image,
        jax=of_image(service.server_image).jax,
        created=service.created,
        reason=picture.problem,
    )


async def _readable(client: Client) -> tuple[str, ...]:
    """Return the namespaces whose services may be read; an empty name for all at once."""

    async def may_read(namespace: str) -> bool:
        kinds = (JOBSETS, PODS, JOBS)
        return all(
            await asyncio.gather(*(objects.allowed(client, "list", each, namespace=namespace) for each in kinds))
        )

    try:
        await objects.list_(client, JOBSETS)
    except ApiError as error:
        if error.status == 404:
            raise discovery.no_jobsets(client) from error
        if error.status != 403:
            raise
    else:
        if await may_read(""):
            return ("",)
    try:
        known = [str(each["metadata"]["name"]) for each in (await objects.list_(client, NAMESPACES)).items]
    except ApiError as error:
        if error.status != 403:
            raise
        # The usual case of a plain user: a Role in one namespace.
        return (client.namespace,)
    allowed = await asyncio.gather(*(may_read(each) for each in known))
    return tuple(each for each, may in zip(known, allowed, strict=True) if may) or (client.namespace,)
