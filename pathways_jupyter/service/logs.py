"""Find the container of a resource manager, a worker or a proxy, to read its log."""

from __future__ import annotations

from dataclasses import dataclass

from pathways_jupyter.base.errors import ConfigError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import count
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS, Object
from pathways_jupyter.service import discovery, names, status, untrusted

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
        pod = await newest_pod(client, namespace, f"{names.JOB_NAME_LABEL}={job}", job=job)
        if pod is None:
            raise ServiceError(f"The proxy {job} has no pod.", hint=advice("See {status}."))
        return LogPlace(pod["metadata"]["name"], names.PROXY_CONTAINER, namespace)
    found = await discovery.find(client, namespace, service)
    if program == RESOURCE_MANAGER:
        labels = f"{names.JOBSET_NAME_LABEL}={found.name},{names.REPLICATED_JOB_LABEL}={names.HEAD_JOB}"
        pod = await newest_pod(client, found.namespace, labels)
        if pod is None:
            raise ServiceError(f"The resource manager of {found.name} has no pod.", hint="Run doctor to see why.")
        return LogPlace(pod["metadata"]["name"], names.RESOURCE_MANAGER_CONTAINER, found.namespace)
    # The newest pod of a host is in the picture of its slice, and without a pod the reason why.
    (picture,) = await status.fetch(client, found.namespace, found.name, logs=False)
    index, _, host = (which or "0").partition("-")
    workers = {(str(each.index), str(worker.index)): worker for each in picture.slices for worker in each.hosts}
    worker = workers.get((index, host or "0"))
    if worker is None:
        hosts = count(found.hosts_per_slice, "host")
        raise ConfigError(
            f"{found.name} has no worker {which}.",
            hint=f"Its slices are 0 to {len(picture.slices) - 1}, with {hosts} each: SLICE-HOST.",
        )
    if not worker.pod:
        hint = "Try again when it is back."
        raise ServiceError(f"The worker of slice {index} has no pod: {worker.reason}.", hint=hint)
    return LogPlace(worker.pod, names.WORKER_CONTAINER, found.namespace)


async def newest_pod(client: Client, namespace: str, labels: str, *, job: str | None = None) -> Object | None:
    """Return the newest pod with these labels that a JobSet, or the Job `job`, has made."""
    listed = await objects.list_(client, PODS, namespace=namespace, labels=labels)
    # Anyone who may create Jobs may give their pods these labels.
    real = (each for each in listed.items if untrusted.JobSetPosition.of(each) or untrusted.controller(each) == job)
    return objects.newest(real)
