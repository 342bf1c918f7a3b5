"""Findings of checks, and the checks that connecting, deploying a service and starting a lab share."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from enum import StrEnum

from pathways_jupyter.base.errors import ApiError, PathwaysError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, JOBSETS, LEASES, NETWORK_POLICIES, PATHWAYS_JOBS, PODS, Resource
from pathways_jupyter.service import discovery, leases, queues


class Level(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARN = "warn"
    """Connecting works, but something else does not."""
    FAIL = "fail"
    """Connecting cannot work, or would leave something behind in the cluster."""


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
      name: What was checked, in one or two words.
      hint: What to do; empty when the check passed.
    """

    name: str
    level: Level
    message: str
    hint: str = ""

    @property
    def heading(self) -> str:
        """The heading under which the documentation explains it; all permissions share one."""
        return "permission" if self.name.startswith("permission ") else self.name


@dataclass(frozen=True)
class Need:
    """A permission that these credentials need.

    Attributes:
      level: How bad it is to lack it.
      purpose: What it is needed for, as the end of a sentence.
      role: The name of the role in the advice.
    """

    resource: Resource
    verbs: tuple[str, ...]
    subresource: str = ""
    level: Level = Level.FAIL
    purpose: str = ""
    role: str = "pathways-user"

    def __str__(self) -> str:
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    @property
    def rule(self) -> str:
        """The resource in the notation of `kubectl create role`."""
        name = f"{self.resource.plural}.{self.resource.group}" if self.resource.group else self.resource.plural
        return f"{name}/{self.subresource}" if self.subresource else name


NEEDS: tuple[Need, ...] = (
    Need(JOBS, ("create", "get", "list", "watch", "delete"), purpose="run a proxy"),
    Need(LEASES, ("create", "get", "list", "patch", "delete"), purpose="keep a proxy from leaking"),
    Need(PODS, ("get", "list", "watch"), purpose="follow proxy and workers"),
    Need(PODS, ("get",), "log", purpose="know which slices a proxy has"),
    # From Kubernetes 1.35 on the WebSocket needs both.
    Need(PODS, ("create", "get"), "portforward", purpose="open the tunnel"),
    Need(JOBSETS, ("get", "list", "watch"), purpose="find the service, and draw it as it changes"),
    Need(PATHWAYS_JOBS, ("list", "watch"), level=Level.WARN, purpose="list PathwaysJobs in the sidebar"),
    Need(NETWORK_POLICIES, ("list",), level=Level.WARN, purpose="see whether other pods can reach the proxies"),
)

IN_CLUSTER_ROLE = "pathways-jupyter-in-cluster"
IN_CLUSTER_NEEDS: tuple[Need, ...] = (
    Need(
        NETWORK_POLICIES, ("create",), "", Level.WARN, "let a notebook in the cluster connect directly", IN_CLUSTER_ROLE
    ),
)
"""Only for notebooks in the cluster: who may create a policy can undo every other one."""
QUEUE_NEEDS: tuple[Need, ...] = tuple(
    replace(each, role="pathways-jupyter-queues")
    for each in (
        Need(queues.QUEUES, ("list",), level=Level.WARN, purpose="see whether there is such a queue"),
        Need(queues.WORKLOADS, ("list", "watch"), purpose="see why a job waits in its queue"),
        Need(queues.WORKLOADS, ("patch",), level=Level.WARN, purpose="suspend a job that is in a queue"),
        Need(queues.VISIBLE_QUEUES, ("get",), "pendingworkloads", Level.WARN, "see the position in the queue"),
        Need(queues.PRIORITIES, ("get",), level=Level.WARN, purpose="see whether there is such a priority"),
        Need(queues.CLUSTER_QUEUES, ("get",), level=Level.WARN, purpose="see the quota"),
    )
)
"""Only for those who name a queue."""
_KUEUE_NAMESPACE = "kueue-system"
_KUEUE_LEASE = "c1f6bfd2.kueue.x-k8s.io"
"""The Lease of its leader, by the name that all its releases give it."""


async def jobsets(client: Client) -> Finding:
    """Check that the cluster has the JobSet kind."""
    try:
        await client.get(f"/apis/{JOBSETS.api_version}")
    except ApiError as error:
        if error.status == 404:
            return failed("jobset", discovery.no_jobsets(client))
        return Finding("jobset", Level.WARN, f"Cannot be checked: {error}", error.hint)
    except PathwaysError as error:
        return failed("jobset", error)
    return Finding("jobset", Level.OK, f"{JOBSETS.api_version} is served")


async def permission(client: Client, namespace: str, need: Need) -> Finding:
    """Check that these credentials have a permission; `namespace` does not matter for what belongs to none."""
    name = f"permission {need}"
    within = namespace if need.resource.namespaced else ""
    try:
        asking = (
            objects.allowed(client, verb, need.resource, namespace=within, subresource=need.subresource)
            for verb in need.verbs
        )
        answers = await asyncio.gather(*asking)
    except PathwaysError as error:
        return Finding(name, Level.WARN, f"Cannot be checked: {error}", error.hint)
    missing = [verb for verb, answer in zip(need.verbs, answers, strict=True) if not answer]
    if not missing:
        return Finding(name, Level.OK, ", ".join(need.verbs))
    where = f" in namespace {within}" if within else ""
    kind, place = ("role", f" --namespace={within}") if within else ("clusterrole", "")
    message = f"Not allowed to {', '.join(missing)} {need}{where}, which is needed to {need.purpose}."
    hint = f"Ask for: kubectl create {kind} {need.role} --verb={','.join(missing)} --resource={need.rule}{place}."
    return Finding(name, need.level, message, hint)


async def queue(client: Client, namespace: str, name: str, priority: str = "") -> list[Finding]:
    """Check a queue: that it is there and active, how much of its quota is used, and that Kueue handles JobSets."""
    there = None
    try:
        there = await queues.check(client, namespace, name, priority)
        used = "it may not be read" if there is None else await queues.usage(client, there)
        found = Finding("queue", Level.OK, f"{name}: {used}")
    except PathwaysError as error:
        found = failed("queue", error)
        if there is None:
            return [found]
    return [found, await _kueue(client)]


async def _kueue(client: Client) -> Finding:
    """Check that Kueue runs and handles JobSets, as far as these credentials may see that."""
    lease = None
    # Forbidden for most; of an installation that names it otherwise, nothing is known.
    with contextlib.suppress(ApiError):
        lease = await objects.find(client, LEASES, _KUEUE_LEASE, namespace=_KUEUE_NAMESPACE)
    if lease is not None and leases.is_stale(lease, client.now()):
        message = f"Kueue does not run: Lease {_KUEUE_NAMESPACE}/{_KUEUE_LEASE} is not renewed."
        return Finding("kueue", Level.FAIL, message, f"Look for its pod: kubectl get pods -n {_KUEUE_NAMESPACE}.")
    runs = "Kueue runs" if lease is not None else "whether Kueue runs may not be read"
    handled = await queues.handles_jobsets(client)
    if handled is None:
        return Finding("kueue", Level.OK, f"{runs}; whether it handles JobSets is not known: it may not be read")
    if handled:
        return Finding("kueue", Level.OK, f"{runs}; it handles JobSets")
    hint = "Add jobset.x-k8s.io/jobset to integrations.frameworks in its ConfigMap kueue-manager-config."
    return Finding("kueue", Level.FAIL, "Kueue does not handle JobSets, which would wait for ever.", hint)


def failed(name: str, error: PathwaysError) -> Finding:
    """Return the finding of a check that `error` ended."""
    return Finding(name, Level.FAIL, str(error), error.hint)
