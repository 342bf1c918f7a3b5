"""Finds Shared Pathways Services by what their JobSets say, whoever made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathways_jupyter.errors import ApiError, ServiceError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBSETS, Object
from pathways_jupyter.service import jobset, names


@dataclass(frozen=True)
class ServiceInfo:
    """What a service says of itself.

    Attributes:
      name: The JobSet's name.
      address: ``host:port`` of its resource manager.
      instance_type: The kind of its slices, e.g. ``tpuv6e:2x2``; empty when it does not say.
      slices: How many it is meant to have.
      hosts_per_slice: Pods of each worker Job.
      server_image: Image of resource manager and workers; the proxy's follows from it.
      sidecar_image: Image of the colocated Python sidecar; empty without one.
      worker_job: Name of the replicated job of its workers.
      started: Whether all of its pods have been started once.
      ended: Why its JobSet will never start a pod again, in JobSet's words; empty while it may.
      embedded: The embedded cluster that it belongs to; empty for a service of a real one.
    """

    name: str
    namespace: str
    address: str
    instance_type: str
    slices: int
    hosts_per_slice: int
    server_image: str
    sidecar_image: str = ""
    worker_job: str = names.WORKER_JOB
    started: bool = False
    ended: str = ""
    embedded: str = ""


async def list_services(client: Client, namespace: str) -> tuple[ServiceInfo, ...]:
    """All services of a namespace, by name; of all namespaces when it is empty.

    Raises:
      ServiceError: The cluster has no JobSets.
      ApiError: Listing them is forbidden.
      ClusterError: The server could not be reached.
    """
    try:
        listing = await objects.list_(client, JOBSETS, namespace=namespace)
    except ApiError as error:
        if error.status == 404:
            raise no_jobsets(client) from error
        raise
    return of_jobsets(listing.items)


async def find(client: Client, namespace: str, wanted: str = "") -> ServiceInfo:
    """Finds a service.

    Args:
      wanted: Its name, its address (``host:port``), or empty for the only one that there is.

    Raises:
      ServiceError: There is none such, or there are several to choose from; the hint names them.
      ApiError: Reading JobSets is forbidden.
      ClusterError: The server could not be reached.
    """
    name, within = name_of(wanted)
    place = within or namespace
    if name:
        # One object is quicker to get than all, and may be readable where all are not.
        found = await objects.find(client, JOBSETS, name, namespace=place)
        described = describe(found) if found is not None else None
        if described is not None and _matches(described, wanted):
            return described
    known = await list_services(client, place)
    exact = [each for each in known if wanted in {"", each.name, each.address}]
    if len(exact) == 1:
        return exact[0]
    listed = ", ".join(each.name for each in known)
    if not known:
        raise ServiceError(
            f"There is no Pathways service in namespace {place}.",
            hint="Check --namespace and --context, or ask who runs the cluster to start a service.",
        )
    if not wanted:
        raise ServiceError(f"There are several Pathways services in namespace {place}.", hint=f"Choose one: {listed}.")
    raise ServiceError(
        f"There is no Pathways service {wanted} in namespace {place}.", hint=f"Services there: {listed}."
    )


def of_jobsets(jobsets: Sequence[Object]) -> tuple[ServiceInfo, ...]:
    """The services among `jobsets`, by name."""
    described = (describe(each) for each in jobsets)
    return tuple(sorted((each for each in described if each is not None), key=lambda each: (each.namespace, each.name)))


def describe(found: Object) -> ServiceInfo | None:
    """What a JobSet says of the service that it is; None when it is something else."""
    jobs = {str(job.get("name")): job for job in (found.get("spec") or {}).get("replicatedJobs") or ()}
    worker_job = next((name for name in names.WORKER_JOBS if name in jobs), "")
    head = _containers(jobs.get(names.HEAD_JOB, {}))
    manager = head.get(names.RESOURCE_MANAGER_CONTAINER)
    # A head with a proxy of its own serves one workload, and is nobody else's to connect to.
    if not worker_job or manager is None or names.PROXY_CONTAINER in head:
        return None
    workers = _containers(jobs[worker_job])
    worker = workers.get(names.WORKER_CONTAINER, {})
    said = flags(manager)
    slices = said.get("instance_count") or jobs[worker_job].get("replicas") or 1
    name = str(found["metadata"]["name"])
    port = said.get("server_port") or names.RESOURCE_MANAGER_PORT
    return ServiceInfo(
        name=name,
        namespace=str(found["metadata"].get("namespace") or ""),
        address=f"{jobset.head_host(name)}:{port}",
        instance_type=said.get("instance_type", ""),
        slices=int(slices),
        hosts_per_slice=int(_job_spec(jobs[worker_job]).get("parallelism") or 1),
        server_image=str(worker.get("image") or manager.get("image") or ""),
        sidecar_image=str((workers.get(names.SIDECAR_CONTAINER) or {}).get("image") or ""),
        worker_job=worker_job,
        started=_has_started(found),
        ended=_how_it_ended(found),
        embedded=str((found["metadata"].get("labels") or {}).get(names.EMBEDDED_LABEL) or ""),
    )


def name_of(wanted: str) -> tuple[str, str]:
    """The name of the service that `wanted` (a name or an address) means, and the namespace where it says one."""
    if ":" not in wanted:
        return wanted, ""
    host = wanted.rpartition(":")[0]
    first, *rest = host.split(".")
    name, separator, _ = first.partition(f"-{names.HEAD_JOB}")
    # <pod>.<jobset>.<namespace>.svc...
    return (name if separator else ""), (rest[1] if len(rest) > 1 else "")


def flags(container: Mapping[str, Any]) -> dict[str, str]:
    """A container's arguments of the form ``--name=value``, by name."""
    found = {}
    for argument in container.get("args") or ():
        name, separator, value = str(argument).partition("=")
        if separator and name.startswith("--"):
            found[name[2:]] = value
    return found


def same_address(one: str, other: str) -> bool:
    """Whether two addresses mean the same resource manager, however much of its DNS name each spells out."""
    if one == other:
        return True
    name, namespace = name_of(one)
    name_too, namespace_too = name_of(other)
    agree = not namespace or not namespace_too or namespace == namespace_too
    return bool(name) and name == name_too and agree and one.rpartition(":")[2] == other.rpartition(":")[2]


def has_ended(service: ServiceInfo) -> ServiceError:
    """The error for a service whose JobSet has ended for good: to wait for it is in vain."""
    return ServiceError(f"Service {service.name} will not come back: {service.ended}.", hint=remedy(service))


def remedy(service: ServiceInfo) -> str:
    """What to do about a service that has ended for good."""
    if service.embedded:
        named = "" if service.embedded == "local" else f" --name {service.embedded}"
        return f"Start it anew: pathways-jupyter local down{named}, then pathways-jupyter local up{named}."
    where = f"-n {service.namespace}" if service.namespace else ""
    return (
        f"Delete its JobSet (kubectl delete jobset {service.name} {where}) and deploy the service again, "
        "or ask who runs the cluster to."
    )


def no_jobsets(client: Client) -> ServiceError:
    """The error for a cluster without the JobSet kind."""
    return ServiceError(
        f"Cluster {client.cluster.name} has no JobSets, which Pathways services are made of.",
        hint="Ask who runs the cluster to install JobSet (jobset.sigs.k8s.io), or choose another --context.",
    )


def _matches(described: ServiceInfo, wanted: str) -> bool:
    return wanted == described.name or same_address(wanted, described.address)


def _job_spec(replicated: Mapping[str, Any]) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = (replicated.get("template") or {}).get("spec") or {}
    return spec


def _containers(replicated: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    pod = (_job_spec(replicated).get("template") or {}).get("spec") or {}
    return {str(each.get("name")): each for each in _all_containers(pod)}


def _all_containers(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from pod.get("containers") or ()
    yield from pod.get("initContainers") or ()


def _how_it_ended(found: Object) -> str:
    """JobSet ends for good when it has failed too often, and when its head has succeeded."""
    status = found.get("status") or {}
    for each in status.get("conditions") or ():
        if each.get("type") in ("Failed", "Completed") and each.get("status") == "True":
            state = "failed for good" if each["type"] == "Failed" else "completed"
            message = str(each.get("message") or each.get("reason") or "").rstrip(".")
            return f"its JobSet has {state}{f' ({message})' if message else ''}"
    return ""


def _has_started(found: Object) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "StartupPolicyCompleted" and each.get("status") == "True" for each in conditions)
