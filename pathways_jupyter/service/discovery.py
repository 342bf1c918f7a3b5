"""Find Shared Pathways Services by their JobSets, whichever tool created them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ApiError, CapacityError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import count
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBSETS, NAMESPACES, Object
from pathways_jupyter.service import names, queues, service_jobset, untrusted
from pathways_jupyter.service.untrusted import MOST_HOSTS, MOST_SLICES


class Unreadable(ValueError):
    """A JobSet has the parts of a service, but cannot be one."""


@dataclass(frozen=True)
class ServiceInfo:
    """A service as its JobSet describes it.

    Attributes:
      name: The JobSet's name.
      address: ``host:port`` of its resource manager.
      instance_type: The kind of its slices, e.g. ``tpuv6e:2x2``; empty when the JobSet does not say.
      slices: Number of slices that it should have.
      hosts_per_slice: Pods of each worker Job.
      image: Image of resource manager and workers, from which the proxy's image is derived.
      sidecar_image: Image of the colocated Python sidecar; empty without one.
      worker_job: Name of the workers' replicated job.
      started: Whether all of its pods have been started once.
      ended: Why its JobSet has ended for good, with JobSet's message; empty while it has not.
      embedded: Name of its embedded cluster; empty on a real cluster.
      created: When its JobSet was created, in seconds since the epoch.
      queue: The queue of Kueue's from which it has its chips; empty for none.
      suspend_after: Seconds without use after which its sessions are suspended at the latest; 0 for never.
    """

    name: str
    namespace: str
    address: str
    instance_type: str
    slices: int
    hosts_per_slice: int
    image: str
    sidecar_image: str = ""
    worker_job: str = names.WORKER_JOB
    started: bool = False
    ended: str = ""
    embedded: str = ""
    created: float = 0.0
    queue: str = ""
    suspend_after: float = 0.0


async def list_services(client: Client, namespace: str) -> tuple[ServiceInfo, ...]:
    """Return all services of a namespace (of all namespaces when it is empty), sorted by name.

    Raises:
      ServiceError: The cluster does not have the JobSet kind, or no such namespace.
      ApiError: Listing them is forbidden.
      ClusterError: The server could not be reached.
    """
    try:
        listing = await objects.list_(client, JOBSETS, namespace=namespace)
    except ApiError as error:
        if error.status == 404:
            raise no_jobsets(client) from error
        raise
    if namespace and not listing.items:
        await require_namespace(client, namespace)
    return of_jobsets(listing.items)


async def require_namespace(client: Client, namespace: str) -> None:
    """Check that there is a namespace, for a list that is empty: that of one that does not exist is empty, too.

    Raises:
      ServiceError: There is none of that name.
    """
    # Reading a namespace may be forbidden.
    with contextlib.suppress(ApiError):
        if await objects.find(client, NAMESPACES, namespace) is None:
            raise ServiceError(
                f"There is no namespace {namespace} in cluster {client.cluster.name}.",
                hint=advice("Check {namespace} and {context}."),
            )


async def find(client: Client, namespace: str, name: str = "", *, instances: Collection[str] = ()) -> ServiceInfo:
    """Find a service.

    Args:
      name: Its name, its address (``host:port``), or empty for the only service.
      instances: The instance types that it is wanted for; without `name`, the only service of that type is found.

    Raises:
      ServiceError: There is no such service, or there are several to choose from; the hint names them.
      ApiError: Reading JobSets is forbidden.
      ClusterError: The server could not be reached.
    """
    services = await candidates(client, namespace, name, instances=instances)
    if len(services) == 1:
        return services[0]
    within, listed = names.service_of(name)[1] or namespace, ", ".join(each.name for each in services)
    if instances:
        raise ServiceError(
            f"There are several Pathways services in namespace {within} with slices of {', '.join(sorted(instances))}.",
            hint=advice("Choose one with {service}: {listed}.", listed=listed),
        )
    raise ServiceError(f"There are several Pathways services in namespace {within}.", hint=f"Choose one: {listed}.")


async def candidates(
    client: Client, namespace: str, named: str = "", *, instances: Collection[str] = ()
) -> tuple[ServiceInfo, ...]:
    """Return the services among which :func:`find` needs a name, or an instance type, to choose; usually one.

    Raises as :func:`find` does where there is none.
    """
    name, within = names.service_of(named)
    searched = within or namespace
    if name:
        # Reading one object is faster than listing all, and may be allowed where listing is not.
        jobset = await objects.find(client, JOBSETS, name, namespace=searched)
        described = describe(jobset) if jobset is not None else None
        if described is not None and (named == described.name or same_address(named, described.address)):
            return (described,)
    services = await list_services(client, searched)
    exact = [each for each in services if named in {"", each.name, each.address}]
    if len(exact) == 1:
        return (exact[0],)
    if not services:
        raise ServiceError(
            f"There is no Pathways service in namespace {searched}.",
            hint=advice("Check {namespace} and {context}, or ask your cluster administrator to start a service."),
        )
    if named:
        listed = ", ".join(each.name for each in services)
        raise ServiceError(
            f"There is no Pathways service {named} in namespace {searched}.", hint=f"Services there: {listed}."
        )
    # A service that does not say its type may have any.
    fitting = [each for each in services if not each.instance_type or set(instances) <= {each.instance_type}]
    if not fitting:
        offered = ", ".join(f"{each.name} ({each.instance_type})" for each in services)
        raise ServiceError(
            f"No Pathways service in namespace {searched} has slices of {', '.join(sorted(instances))}.",
            hint=f"There: {offered}.",
        )
    return tuple([each for each in fitting if not each.ended] or fitting) if instances else services


def check(service: ServiceInfo, instances: Mapping[str, int]) -> None:
    """Raise if `service` can never provide slices of `instances`, however long one waits.

    Raises:
      ServiceError: It has ended, or has slices of another type.
      CapacityError: It has fewer.
    """
    if service.ended:
        raise has_ended(service)
    offered = service.instance_type
    if other := [each for each in instances if offered and each != offered]:
        raise ServiceError(
            f"Service {service.name} has slices of {offered}, not {', '.join(other)}.",
            hint=advice(
                "Ask for {tpu:{offered}=N}, with N up to {most}, or for another service.",
                offered=offered,
                most=service.slices,
            ),
        )
    if (requested := sum(instances.values())) > service.slices:
        raise CapacityError(
            f"Service {service.name} has {count(service.slices, 'slice')} in all, but {requested} were requested.",
            hint=f"Ask for up to {service.slices}.",
        )


def of_jobsets(jobsets: Sequence[Object]) -> tuple[ServiceInfo, ...]:
    """Return the services among `jobsets`, sorted by name."""
    described = (describe(each) for each in jobsets)
    return tuple(sorted((each for each in described if each is not None), key=lambda each: (each.namespace, each.name)))


def describe(jobset: Mapping[str, Any], *, own: bool = False) -> ServiceInfo | None:
    """Return the service that a JobSet describes; None when it is not a service, or one that cannot be.

    Args:
      own: Also describe the resource manager and workers that one workload has for itself, such as a job.
    """
    try:
        return read(jobset, own=own)
    except Unreadable:
        return None


def read(jobset: Mapping[str, Any], *, own: bool = False) -> ServiceInfo | None:
    """Like :func:`describe`.

    Raises:
      Unreadable: Its numbers cannot be those of a service.
    """
    jobs = {str(job.get("name")): job for job in (jobset.get("spec") or {}).get("replicatedJobs") or ()}
    worker_job = next((name for name in names.WORKER_JOBS if name in jobs), "")
    head = _containers(jobs.get(names.HEAD_JOB, {}))
    manager = head.get(names.RESOURCE_MANAGER_CONTAINER)
    # A head with a proxy of its own belongs to one workload; it is not a shared service.
    if not worker_job or manager is None or (names.PROXY_CONTAINER in head and not own):
        return None
    workers = _containers(jobs[worker_job])
    worker = workers.get(names.WORKER_CONTAINER, {})
    said = flags(manager)
    slices = untrusted.count(said.get("instance_count") or jobs[worker_job].get("replicas") or 1, MOST_SLICES)
    hosts = untrusted.count(_job_spec(jobs[worker_job]).get("parallelism") or 1, MOST_HOSTS)
    if slices is None or hosts is None or slices * hosts > MOST_HOSTS:
        raise Unreadable("it asks for more slices or hosts than any cluster has")
    ended, over = "", objects.true_condition(jobset, "Failed", "Completed")
    if over is not None:
        # It failed too often, or its head succeeded.
        message = untrusted.text(over.get("message") or over.get("reason")).rstrip(".")
        state = "failed for good" if over["type"] == "Failed" else "completed"
        ended = f"its JobSet has {state}{f' ({message})' if message else ''}"
    name = str(jobset["metadata"]["name"])
    port = untrusted.count(said.get("server_port"), 65535) or names.RESOURCE_MANAGER_PORT
    return ServiceInfo(
        name=name,
        namespace=str(jobset["metadata"].get("namespace") or ""),
        address=f"{service_jobset.head_host(name)}:{port}",
        instance_type=tpu.canonical(untrusted.text(said.get("instance_type"), longest=64)),
        slices=slices,
        hosts_per_slice=hosts,
        image=untrusted.text(worker.get("image") or manager.get("image")),
        sidecar_image=untrusted.text((workers.get(names.SIDECAR_CONTAINER) or {}).get("image")),
        worker_job=worker_job,
        started=objects.true_condition(jobset, "StartupPolicyCompleted") is not None,
        ended=ended,
        embedded=untrusted.label(jobset, names.EMBEDDED_LABEL),
        created=objects.created(jobset),
        queue=queues.queue_of(jobset),
        suspend_after=untrusted.suspend_after(jobset),
    )


def flags(container: Mapping[str, Any]) -> dict[str, str]:
    """Return a container's arguments of the form ``--name=value``, by name."""
    by_name = {}
    for argument in container.get("args") or ():
        name, separator, value = str(argument).partition("=")
        if separator and name.startswith("--"):
            by_name[name[2:]] = value
    return by_name


def same_address(one: str, other: str) -> bool:
    """Return whether two addresses mean the same resource manager, with a short or a full DNS name."""
    if one == other:
        return True
    name, namespace = names.service_of(one)
    name_too, namespace_too = names.service_of(other)
    agree = not namespace or not namespace_too or namespace == namespace_too
    return bool(name) and name == name_too and agree and one.rpartition(":")[2] == other.rpartition(":")[2]


def has_ended(service: ServiceInfo) -> ServiceError:
    """Return the error for a service whose JobSet has ended for good, so that waiting is useless."""
    return ServiceError(f"Service {service.name} will not come back: {service.ended}.", hint=remedy(service))


def remedy(service: ServiceInfo) -> str:
    """Return what to do about a service that has ended for good."""
    if service.embedded:
        named = "" if service.embedded == "local" else f" --name {service.embedded}"
        return f"Restart it: pathways-jupyter local down{named}, then pathways-jupyter local up{named}."
    where = f"-n {service.namespace}" if service.namespace else ""
    return (
        f"Delete its JobSet (kubectl delete jobset {service.name} {where}) and deploy the service again "
        "(pathways-jupyter service deploy), or ask your cluster administrator to."
    )


def no_jobsets(client: Client) -> ServiceError:
    """Return the error for a cluster without the JobSet kind."""
    return ServiceError(
        f"Cluster {client.cluster.name} has no JobSets, which Pathways services need.",
        hint=advice(
            "Ask your cluster administrator to install JobSet (jobset.sigs.k8s.io), or choose another {context}."
        ),
    )


def _job_spec(replicated: Mapping[str, Any]) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = (replicated.get("template") or {}).get("spec") or {}
    return spec


def _containers(replicated: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    pod = (_job_spec(replicated).get("template") or {}).get("spec") or {}
    containers = (*(pod.get("containers") or ()), *(pod.get("initContainers") or ()))
    return {str(each.get("name")): each for each in containers}
