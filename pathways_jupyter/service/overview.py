"""The services that a person may see: address, slices and their users, image, age."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import NAMESPACES
from pathways_jupyter.service import names, status
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
        place = names.service_of(name)[1] or namespace or client.namespace
        found = await status.fetch_with_services(client, place, name)
    elif namespace:
        found = await status.fetch_with_services(client, namespace)
    else:
        found = await _readable(client)
    return tuple(_overview(*pair) for pair in found)


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


async def _readable(client: Client) -> tuple[tuple[ServiceInfo, Service], ...]:
    """Return the services of all namespaces if they may be read at once; otherwise of each in which they may."""
    try:
        return await status.fetch_with_services(client, "")
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
            return await status.fetch_with_services(client, namespace)
        except ApiError as error:
            if error.status != 403:
                raise
            return error

    others, own = await asyncio.gather(names_of_namespaces(), of(client.namespace))
    rest = await asyncio.gather(*(of(each) for each in others if each != client.namespace))
    found = [each for each in (own, *rest) if not isinstance(each, ApiError)]
    if not found and isinstance(own, ApiError):
        raise own
    pairs = [pair for each in found for pair in each]
    return tuple(sorted(pairs, key=lambda pair: (pair[0].namespace, pair[0].name)))
