"""Check everything that a connection needs, from the kubeconfig to the versions, and say how to fix it.

Checks build on each other. Without a connection to the cluster the others cannot run; they are left out rather than
reported as failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ApiError, PathwaysError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import count, some, to_cluster
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client, Json, Query
from pathways_jupyter.kube.clock import boot_seconds
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.kube.objects import JOBS, JOBSETS, LEASES, NETWORK_POLICIES
from pathways_jupyter.service import (
    abandoned,
    checks,
    discovery,
    leases,
    names,
    networkpolicy,
    permissions,
    proxy_job,
    status,
    unreadable,
)
from pathways_jupyter.service.checks import Finding, failed, jobsets
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.images import Versions, differences, no_sidecar, of_image
from pathways_jupyter.service.model import Service
from pathways_jupyter.service.pathwaysjob import installation
from pathways_jupyter.service.permissions import NEEDS, Need
from pathways_jupyter.service.podstate import State

_NEW_OPERATION = 6
"""Round trips of jaxlib's own for an operation that it has not seen: four before the result, two for its first use."""
_FELT_SECONDS = 0.02
"""A notebook beside the cluster gains nothing that is felt from less."""


async def examine(
    config: ConnectConfig,
    *,
    versions: Versions | None = None,
    leftovers: Sequence[str] = (),
    further: Sequence[Need] = (),
    uploads: Mapping[str, str] | None = None,
) -> tuple[Finding, ...]:
    """Run every check that can be run.

    Args:
      config: The cluster and the service, as for connecting.
      versions: Python and JAX of the kernel that would connect.
      leftovers: What dead sessions left on this machine, each in a few words.
      further: Permissions to check besides :data:`NEEDS`.
      uploads: How fast sessions of this machine sent data lately, in words, by the API server's URL.
    """
    findings: list[Finding] = []
    here = [_left(leftovers)] if leftovers else []
    try:
        cluster = await asyncio.to_thread(auth.of_config, config)
    except PathwaysError as error:
        return (failed("cluster", error), *here)
    findings.append(Finding("cluster", Tone.OK, f"{cluster.name} at {cluster.server}"))
    namespace = config.namespace or cluster.namespace
    needs = (*NEEDS, *further, *(permissions.QUEUE_NEEDS if config.queue else ()))
    async with _ReadOnce(cluster, patience=0) as client:
        # All at once, as each round trip to a distant cluster is felt.
        (reached, accepted, has_jobsets, left), permitted, (served, *others) = await asyncio.gather(
            asyncio.gather(
                _reach(client, (uploads or {}).get(cluster.server, "")),
                _credentials(client),
                jobsets(client),
                _leftovers(client, namespace, leftovers),
            ),
            asyncio.gather(*(permissions.check(client, namespace, need) for need in needs)),
            asyncio.gather(
                _service(client, namespace, config, versions or Versions()),
                checks.queue(client, namespace, config.queue, config.priority),
                _network(client, namespace),
                _unreadable(client, namespace),
                _operator(client, namespace),
            ),
        )
    for finding in (reached, accepted):
        findings.append(finding)
        # Without an answer, or with refused credentials, everything else has failed too.
        if finding.level is Tone.FAIL:
            return (*findings, *here)
    if has_jobsets.level is Tone.FAIL:
        # There is no service either.
        served = []
    return (*findings, has_jobsets, *permitted, *served, *(each for kind in others for each in kind), left)


class _ReadOnce(Client):
    """A client whose checks share what they read: it requests each object and list once."""

    def __init__(self, cluster: Cluster, *, patience: float) -> None:
        super().__init__(cluster, patience=patience)
        self._answers: dict[tuple[str, ...], asyncio.Task[Json]] = {}

    async def get(self, path: str, *, query: Query | None = None) -> Json:
        key = path, *map("=".join, sorted((query or {}).items()))
        if key not in self._answers:
            self._answers[key] = asyncio.create_task(super().get(path, query=query))
        return await asyncio.shield(self._answers[key])


async def _reach(client: Client, upload: str) -> Finding:
    try:
        version = await client.get("/version")
    except ApiError as error:
        # The server can be reached if it refuses the credentials.
        return failed("credentials" if error.status == 401 else "reachable", error)
    except PathwaysError as error:
        return failed("reachable", error)
    # Once more, past the answers that are shared: on the open connection it takes one round trip.
    sent = boot_seconds()
    with contextlib.suppress(PathwaysError):
        await client.request("GET", "/version")
    # The rate is not probed: what could be sent in a moment would show how slowly TCP begins.
    kubernetes = f"Kubernetes {version.get('gitVersion', 'of unknown version')}"
    parts = filter(None, (kubernetes, upload, _outlook(boot_seconds() - sent)))
    return Finding("reachable", Tone.OK, ", ".join(parts))


def _outlook(seconds: float) -> str:
    """Say what to expect of a round trip of so many seconds, in one sentence."""
    if seconds < _FELT_SECONDS:
        return f"{to_cluster(seconds)}: not felt in a notebook"
    return (
        f"{to_cluster(seconds)}: a new operation takes about {_NEW_OPERATION * seconds:.1f} s, later ones none; "
        "`pathways-jupyter lab up` puts the notebook beside it"
    )


async def _credentials(client: Client) -> Finding:
    """Check that the cluster accepts the credentials; `/version`, read before, is public."""
    try:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        who = await client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        name = ((who.get("status") or {}).get("userInfo") or {}).get("username", "")
    except ApiError as error:
        if error.status == 401:
            return failed("credentials", error)
        # Servers before 1.28 do not have SelfSubjectReviews.
        name = ""
    except PathwaysError as error:
        return failed("reachable", error)
    return Finding("credentials", Tone.OK, f"accepted, as {name}" if name else "accepted")


async def _service(client: Client, namespace: str, config: ConnectConfig, here: Versions) -> list[Finding]:
    """Check the service that connecting would choose; where its type will decide, all that it may choose."""

    async def find() -> tuple[ServiceInfo, ...]:
        if not (instances := config.instances):
            return await discovery.candidates(client, namespace, config.service)
        service = await discovery.find(client, namespace, config.service, instances=instances)
        discovery.check(service, instances)
        return (service,)

    try:
        pairs = await status.derive_services(client, names.service_of(config.service)[1] or namespace, find())
    except PathwaysError as error:
        return [failed("service", error)]
    services, findings = [each for each, _ in pairs], [_one_service(*each, config, here) for each in pairs]
    if len(findings) == 1:
        return findings[0]
    works = [all(finding.level is not Tone.FAIL for finding in each) for each in findings]
    chosen = [finding for each in findings for finding in each]
    if any(works):
        # A notebook can connect to another one.
        chosen = [replace(each, level=Tone.WARN) if each.level is Tone.FAIL else each for each in chosen]
    return [_choice(services), *chosen]


def _choice(services: Sequence[ServiceInfo]) -> Finding:
    """Say how connecting chooses one of several services."""
    types = Counter(each.instance_type for each in services)
    listed = some([f"{each.name} ({each.instance_type or 'of an unknown type'})" for each in services])
    message = f"There are {len(services)} services: {listed}."
    if max(types.values()) == 1 and "" not in types:
        return Finding("service", Tone.OK, f"{message} Connecting chooses by the type of slice.")
    return Finding(
        "service",
        Tone.WARN,
        f"{message} The type of slice does not decide between all of them.",
        advice("Name one with {service}."),
    )


def _one_service(service: ServiceInfo, model: Service, config: ConnectConfig, here: Versions) -> list[Finding]:
    """Check a service, its slices, and that its images fit this environment."""
    images = tuple(_images(service, here, config))
    if service.ended:
        return [failed("service", discovery.has_ended(service)), *images]
    head = Finding("service", Tone.OK, f"{service.name} at {service.address}")
    if model.head is not State.READY:
        message = f"The resource manager of {service.name} is not ready: {model.reason}."
        hint = advice(
            "See its log: {logs:rm}, or kubectl describe jobset {name} -n {namespace}.",
            name=service.name,
            namespace=service.namespace,
        )
        head = Finding("service", Tone.FAIL, message, hint)
    there = len(model.slices)
    bad = [each for each in model.slices if each.state is not State.READY]
    summary = f"{there - len(bad)} of {count(there, f'{service.instance_type} slice')} ready"
    if model.reclaimable:
        summary += f", {model.reclaimable} reclaimable"
    if not bad:
        return [head, Finding("slices", Tone.OK, f"{summary}, {model.free} free"), *images]
    reasons = "; ".join(
        f"slice {each.index} {each.state}: {next((host.reason for host in each.hosts if host.reason), '')}"
        for each in bad[:3]
    )
    level = Tone.FAIL if len(bad) == len(model.slices) else Tone.WARN
    slices = Finding("slices", level, f"{summary}; {reasons}.", advice("See their logs: {logs:worker N}."))
    return [head, slices, *images]


def _images(service: ServiceInfo, here: Versions, config: ConnectConfig) -> Iterable[Finding]:
    image = config.proxy_image
    if not image:
        try:
            image = proxy_job.image_for(service.image)
        except PathwaysError as error:
            yield failed("proxy image", error)
            return
    if not here.jax:
        yield Finding("jax", Tone.WARN, "JAX is not installed here.", "Install jax in the kernel's environment.")
    else:
        yield _compare("jax", image, Versions(jax=here.jax), "the proxy")
    none = no_sidecar(here.jax) if here.jax else ""
    if not service.sidecar_image:
        yield Finding("sidecar", Tone.OK, f"none, which only %%colocated needs{': ' if none else ''}{none.rstrip('.')}")
        return
    finding = _compare("sidecar", service.sidecar_image, here, "the colocated Python sidecar")
    yield replace(finding, hint=f"{finding.hint} {none}".strip()) if finding.level is not Tone.OK else finding


def _compare(name: str, image: str, here: Versions, what: str) -> Finding:
    there = of_image(image)
    if not there.jax:
        message = f"The tag of {image} does not name {what}'s JAX version."
        return Finding(name, Tone.WARN, message, "Prefer images tagged jax-X.Y.Z.")
    if different := differences(here, there):
        python = f"Python {there.python} and " if there.python else ""
        message = f"This environment and {what} differ: {'; '.join(different)}."
        return Finding(name, Tone.WARN, message, f"Use a kernel with {python}jax=={there.jax}.")
    return Finding(name, Tone.OK, f"{what} is made for JAX {there.jax}, which is installed here")


async def _network(client: Client, namespace: str) -> list[Finding]:
    """Check whether other pods can reach the proxies; no finding without the permission, which has its own check."""
    try:
        policies = (await objects.list_(client, NETWORK_POLICIES, namespace=namespace)).items
    except PathwaysError:
        return []
    covering = networkpolicy.covering(policies, {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.SESSION_LABEL: "any"})
    covered_by = [str(each["metadata"]["name"]) for each in covering]
    opened = [str(each["metadata"]["name"]) for each in covering if networkpolicy.is_open(each)]
    if covered_by and not opened:
        return [Finding("network", Tone.OK, f"NetworkPolicy {', '.join(covered_by)} covers the proxies")]
    why = f"NetworkPolicy {opened[0]} lets every pod in" if opened else "no NetworkPolicy covers them"
    message = f"Other pods can reach the proxies in namespace {namespace}, and run code on TPU hosts: {why}."
    hint = f"Close their ports: pathways-jupyter network-policy | kubectl apply -n {namespace} -f -"
    return [Finding("network", Tone.WARN, message, hint)]


async def _unreadable(client: Client, namespace: str) -> list[Finding]:
    """Name the objects of other users that cannot be read; no finding without the permissions, which have checks."""
    try:
        kinds = (LEASES, JOBS, JOBSETS)
        listed = await asyncio.gather(*(objects.list_(client, each, namespace=namespace) for each in kinds))
    except PathwaysError:
        return []
    refused = [(each, said) for kind in listed for each in kind.items if (said := unreadable.values_of(each))]
    if not refused:
        return []
    named = some([f"{unreadable.name_of(each)} ({', '.join(said)})" for each, said in refused])
    message = f"{count(len(refused), 'object')} cannot be read in full: {named}."
    hint = "Ask their users why, or delete them with kubectl; what cannot be read is left out elsewhere."
    return [Finding("objects", Tone.WARN, message, hint)]


async def _operator(client: Client, namespace: str) -> list[Finding]:
    """Check that an installed operator lives; no finding where none is installed, or without the permission to look."""
    namespaces = dict.fromkeys((installation.NAMESPACE, namespace))
    looks = (objects.find(client, LEASES, names.OPERATOR_LEASE, namespace=each) for each in namespaces)
    for searched, lease in zip(namespaces, await asyncio.gather(*looks, return_exceptions=True), strict=True):
        if lease is None or isinstance(lease, PathwaysError):
            continue
        if isinstance(lease, BaseException):
            raise lease
        if not leases.is_stale(lease, client.now()):
            return [Finding("operator", Tone.OK, f"an operator in namespace {searched} renews its Lease")]
        message = (
            f"No operator renews Lease {searched}/{names.OPERATOR_LEASE}: PathwaysJobs stay pending, and proxies of "
            "dead sessions hold their slices until the next connect."
        )
        return [Finding("operator", Tone.WARN, message, f"Look for its pod: kubectl get pods -n {searched}")]
    return []


async def _leftovers(client: Client, namespace: str, here: Sequence[str]) -> Finding:
    try:
        stale = await abandoned.sweep(client, namespace, dry_run=True, reclaim=abandoned.EVERY)
    except PathwaysError as error:
        return _left(here) if here else Finding("leftovers", Tone.WARN, f"Cannot be checked: {error}", error.hint)
    shown = {each.job: f"proxy {each.job} of {each.user or 'an unknown user'} ({each.reason})" for each in stale}
    if names_left := [*here, *(shown[each.job] for each in stale if not each.kept)]:
        return _left(names_left)
    reclaimable = "; ".join(shown[each.job] for each in stale if each.kept)
    none = f"none on this machine, none in namespace {namespace}"
    return Finding("leftovers", Tone.OK, f"{none}; {reclaimable}" if reclaimable else none)


def _left(left: Sequence[str]) -> Finding:
    return Finding("leftovers", Tone.WARN, f"{len(left)} left: {'; '.join(left)}.", advice("Run {clean}."))
