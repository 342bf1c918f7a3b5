"""The workers of a service, session or PathwaysJob as hosts, reached by exec."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from pathways_jupyter.base.errors import ApiError, ClusterError, ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.execute import Execution, execute
from pathways_jupyter.kube.objects import JOBSETS, PODS
from pathways_jupyter.multihost.errors import HostUnreachable, RemoteHostError
from pathways_jupyter.multihost.targets import Target, ordered
from pathways_jupyter.service import discovery, jobs, names, untrusted


async def find(
    client: Client, namespace: str, *, job: str = "", service: str = "", partial: bool = False
) -> tuple[Target, ...]:
    """Return the running workers of a PathwaysJob or of a service.

    Args:
      partial: Whether fewer than all will do.

    Raises:
      ServiceError: There is no such service or job.
      ConfigError: No worker runs, or one does not.
    """
    if job:
        # A job's workers are those of the JobSet of its name.
        manifest = await objects.find(client, JOBSETS, job, namespace=namespace)
        try:
            info = discovery.read(manifest, own=True) if manifest is not None else None
        except discovery.Unreadable as error:
            raise ConfigError(
                f"The JobSet of job {job} cannot be read: {error}.",
                hint=f"kubectl get jobset {job} -o yaml shows it.",
            ) from error
        jobset, what, shows = job, f"job {job}", advice("{job_show:{name}} shows their state", name=job)
    else:
        info = await discovery.find(client, namespace, service)
        namespace, jobset, what = info.namespace, info.name, f"service {info.name}"
        shows = advice("{slices} shows their state")
    listing = await objects.list_(client, PODS, namespace=namespace, labels=f"{names.JOBSET_NAME_LABEL}={jobset}")
    pods = []
    for pod in listing.items:
        part, metadata = untrusted.JobSetPosition.of(pod), pod["metadata"]
        running = (pod.get("status") or {}).get("phase") == "Running" and not metadata.get("deletionTimestamp")
        if not running or part is None or part.replicated_job not in names.WORKER_JOBS:
            continue
        containers = [each["name"] for each in pod["spec"]["containers"]]
        if part.job_index.isdecimal():
            pods.append(
                Target(
                    name=metadata["name"],
                    slice=int(part.job_index),
                    worker=part.host,
                    pod=metadata["name"],
                    namespace=namespace,
                    container=names.WORKER_CONTAINER if names.WORKER_CONTAINER in containers else containers[0],
                )
            )
    if not pods:
        if job:
            # Who may not read jobs learns that no worker runs, and no more.
            with contextlib.suppress(ApiError):
                await jobs.find(client, job, namespace=namespace)
        raise ConfigError(f"No worker of {what} is running.", hint=advice("{shows}.", shows=shows))
    if info is not None and not partial:
        # On some of them, a program whose parts wait for each other would not end.
        hosts = itertools.product(range(info.slices), range(info.hosts_per_slice))
        missing = sorted(set(hosts) - {(each.slice, each.worker) for each in pods})
        if missing:
            raise ConfigError(
                f"{len(missing)} of {info.slices * info.hosts_per_slice} workers of {what} do not run, "
                f"the first is {missing[0][0]}-{missing[0][1]}.",
                hint=advice("{shows}; --keep-going runs it on the others.", shows=shows),
            )
    return ordered(pods, what)


@dataclass(frozen=True)
class PodConnection:
    """Starts programs in a pod, each over a connection of its own."""

    client: Client
    target: Target

    async def start(self, command: list[str]) -> PodChannel:
        """See :class:`~pathways_jupyter.multihost.host_program.Connection`."""
        target = self.target
        with _explained(target):
            running = await execute(
                self.client, target.pod, command, namespace=target.namespace, container=target.container
            )
        return PodChannel(target, running)

    async def close(self) -> None:
        """Do nothing: the client belongs to the caller."""


@dataclass(frozen=True)
class PodChannel:
    """A program in a pod; see :class:`~pathways_jupyter.multihost.host_program.RemoteProcess` for its methods."""

    target: Target
    execution: Execution

    async def write(self, data: bytes) -> None:
        """Send `data`."""
        with _explained(self.target):
            await self.execution.write(data)

    async def read(self) -> bytes:
        """Return some output."""
        with _explained(self.target):
            return await self.execution.read()

    async def close(self) -> None:
        """Close input and output."""
        self.execution.close()

    async def complaint(self) -> bytes:
        """Return the standard error, or why the program could not run."""
        return self.execution.complaint


@contextlib.contextmanager
def _explained(target: Target) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        raise RemoteHostError(f"{target.name}: {error}", hint=error.hint) from error
    except ClusterError as error:
        raise HostUnreachable(f"The connection to {target.name} was lost: {error}", hint=error.hint) from error
