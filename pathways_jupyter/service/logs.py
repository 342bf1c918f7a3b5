"""Find the pod of a resource manager, a worker or a proxy, and read its log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from pathways_jupyter.errors import ConfigError, ServiceError
from pathways_jupyter.kube import objects, pods
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.service import cluster_input, discovery, names, status
from pathways_jupyter.wording import count

RESOURCE_MANAGER, WORKER, PROXY = "rm", "worker", "proxy"


@dataclass(frozen=True)
class LogPlace:
    """A container with a log."""

    pod: str
    container: str
    namespace: str


async def find(
    client: Client, namespace: str, program: str, *, which: str = "", service: str = "", job: str = ""
) -> LogPlace:
    """Find the log of a program.

    Args:
      program: ``rm``, ``worker`` or ``proxy``.
      which: For a worker: its slice, or ``SLICE-HOST``.
      service: Name or address of the service; empty for the only one.
      job: For a proxy: the name of its Job.

    Raises:
      ConfigError: `which` is no slice or host of the service.
      ServiceError: There is no such pod at the moment.
    """
    if program == PROXY:
        pod = await _newest(client, namespace, f"{names.JOB_NAME_LABEL}={job}", job)
        if not pod:
            raise ServiceError(f"The proxy {job} has no pod.", hint="See %pathways status.")
        return LogPlace(pod, names.PROXY_CONTAINER, namespace)
    if program == RESOURCE_MANAGER:
        found = await discovery.find(client, namespace, service)
        labels = f"{names.JOBSET_NAME_LABEL}={found.name},{names.REPLICATED_JOB_LABEL}={names.HEAD_JOB}"
        pod = await _newest(client, found.namespace, labels)
        if not pod:
            raise ServiceError(f"The resource manager of {found.name} has no pod.", hint="Run doctor to see why.")
        return LogPlace(pod, names.RESOURCE_MANAGER_CONTAINER, found.namespace)
    return await _worker(client, namespace, which, service)


async def lines(
    client: Client, place: LogPlace, *, follow: bool = False, tail: int | None = None
) -> AsyncIterator[str]:
    """Yield the log's lines; see :func:`pathways_jupyter.kube.pods.logs`."""
    async for line in pods.logs(
        client, place.pod, namespace=place.namespace, container=place.container, follow=follow, tail=tail
    ):
        yield line


async def _worker(client: Client, namespace: str, which: str, service: str) -> LogPlace:
    found = await discovery.find(client, namespace, service)
    (picture,) = await status.fetch(client, found.namespace, found.name, logs=False)
    index, _, host = (which or "0").partition("-")
    wanted = (index, host or "0")
    for each in picture.slices:
        for worker in each.hosts:
            if (str(each.index), str(worker.index)) == wanted:
                if not worker.pod:
                    raise ServiceError(
                        f"The worker of slice {index} has no pod: {worker.reason}.", hint="Try again when it is back."
                    )
                return LogPlace(worker.pod, names.WORKER_CONTAINER, found.namespace)
    hosts = count(found.hosts_per_slice, "host")
    raise ConfigError(
        f"{found.name} has no worker {which}.",
        hint=f"Its slices are 0 to {len(picture.slices) - 1}, with {hosts} each: SLICE-HOST.",
    )


async def _newest(client: Client, namespace: str, labels: str, job: str | None = None) -> str:
    listed = await objects.list_(client, PODS, namespace=namespace, labels=labels)
    # Anyone who may create Jobs may give their pods these labels.
    real = [each for each in listed.items if cluster_input.Part.of(each) or cluster_input.controller(each) == job]
    by_age = sorted(real, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
    return str(by_age[-1]["metadata"]["name"]) if by_age else ""
