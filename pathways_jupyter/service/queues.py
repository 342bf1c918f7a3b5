"""Kueue: what a Job or a JobSet waits for in its queue.

A label puts it into a queue; Kueue resumes it when there is quota, suspends it again when it evicts it, and says why in
a Workload. Only Kueue knows positions, so they come from its visibility API, where the cluster serves that.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import yaml

from pathways_jupyter.base.config import SETTINGS
from pathways_jupyter.base.errors import ApiError, ClusterError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.setting_values import check_priority
from pathways_jupyter.base.text import some
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, JOBSETS, Object, Resource
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.kube.watch_group import WatchGroup
from pathways_jupyter.service import names, untrusted

GROUP = "kueue.x-k8s.io"
VISIBLE_QUEUES = Resource("visibility.kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue")
WORKLOADS = Resource(GROUP, "v1beta1", "workloads", "Workload")
QUEUES = Resource(GROUP, "v1beta1", "localqueues", "LocalQueue")
CLUSTER_QUEUES = Resource(GROUP, "v1beta1", "clusterqueues", "ClusterQueue", namespaced=False)
PRIORITIES = Resource(GROUP, "v1beta1", "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False)

_CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
_WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)
_ASK = "Ask your cluster administrator."
_POSITION_SECONDS = 30.0
"""Between two looks at the position, which cannot be watched; longer than Kueue takes to make a Workload."""
_versions: WeakKeyDictionary[Client, dict[str, str]] = WeakKeyDictionary()
_PREEMPTED = re.compile(r"JobUID: (?P<uid>[\w-]+)\)(?: due to (?P<why>[^;]+))?")


def labels(queue: str, priority: str = "") -> dict[str, str]:
    """Return the labels that put a Job, a JobSet or a PathwaysJob into a queue; none without a queue."""
    marks = {names.QUEUE_LABEL: queue, names.PRIORITY_LABEL: priority}
    return {key: value for key, value in marks.items() if value} if queue else {}


def requested(values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the queue and the priority that the options of a command name; empty where they name none.

    Raises:
      ConfigError: One cannot be a name, or there is a priority and no queue.
    """
    queue, priority = (
        SETTINGS[name].check(values[name], name) if values.get(name) else "" for name in ("queue", "priority")
    )
    check_priority(priority, queue)
    return queue, priority


def queue_of(item: Mapping[str, Any]) -> str:
    """Return the queue of an object; empty if it is in none."""
    return untrusted.label(item, names.QUEUE_LABEL)


async def check(client: Client, namespace: str, queue: str, priority: str = "") -> Object | None:
    """Check that there is such a queue, before something is created that would wait in it for ever; return it.

    What may not be read is taken to be there, and None is returned: Kueue then says what is missing.

    Raises:
      ServiceError: The cluster has no Kueue, no such queue, or no such priority.
    """
    there: tuple[Object, ...] | None = None
    try:
        there = (await objects.list_(client, await served(client, QUEUES), namespace=namespace)).items
    except ApiError as error:
        if error.status == 404:
            raise ServiceError(
                f"Cluster {client.cluster.name} has no Kueue, so there is no queue {queue}.",
                hint=advice("Leave out {queue}, or ask your cluster administrator."),
            ) from error
        if error.status != 403:
            raise
    by_name = {str(each["metadata"]["name"]): each for each in there or ()}
    if there is not None and queue not in by_name:
        hint = f"There: {some(list(by_name))}." if by_name else "It has none."
        raise ServiceError(f"There is no queue {queue} in namespace {namespace}.", hint=hint)
    if priority:
        # Who may use a queue may often not read priorities, which belong to no namespace.
        with contextlib.suppress(ApiError):
            if await objects.find(client, await served(client, PRIORITIES), priority) is None:
                raise ServiceError(
                    f"There is no WorkloadPriorityClass {priority}.",
                    hint="List them: kubectl get workloadpriorityclasses.",
                )
    return by_name.get(queue)


async def usage(client: Client, queue: Object) -> str:
    """Return how many jobs a LocalQueue has, and how much of its ClusterQueue's quota is used.

    Raises:
      ServiceError: The queue admits nothing, for the reason that Kueue gives, or because Kueue does not run.
    """
    status, local = queue.get("status") or {}, str(queue["metadata"]["name"])
    name = untrusted.text(queue["spec"]["clusterQueue"])
    _check_active(queue, f"Queue {local}")
    counts = f"{status.get('pendingWorkloads', 0)} pending, {status.get('admittedWorkloads', 0)} admitted"
    try:
        cluster = await objects.get(client, await served(client, CLUSTER_QUEUES), name)
    except ApiError as error:
        if error.status == 404:
            raise ServiceError(
                f"Queue {local} admits nothing: its ClusterQueue {name} is not there.", hint=_ASK
            ) from error
        return f"{counts}; the quota of ClusterQueue {name} is not known: it may not be read"
    _check_active(cluster, f"Queue {local} admits nothing: its ClusterQueue {name}")
    reserved = (cluster.get("status") or {}).get("flavorsReservation") or ()
    used = {(flavor["name"], each["name"]): each["total"] for flavor in reserved for each in flavor["resources"]}
    amounts = [
        f"{each['name']} {used.get((flavor['name'], each['name']), 0)} of {each['nominalQuota']} ({flavor['name']})"
        for group in cluster["spec"].get("resourceGroups") or ()
        for flavor in group["flavors"]
        for each in flavor["resources"]
    ]
    return untrusted.text(f"{counts}; in ClusterQueue {name} are used: {', '.join(amounts) or 'no resources'}")


def _check_active(queue: Object, what: str) -> None:
    conditions = (queue.get("status") or {}).get("conditions") or ()
    active = next((each for each in conditions if each.get("type") == "Active"), None)
    if active is None:
        raise ServiceError(f"{what} has not been seen by Kueue, which does not seem to run.", hint=_ASK)
    if active.get("status") != "True":
        why = untrusted.text(active.get("message") or active.get("reason")).rstrip(".")
        raise ServiceError(f"{what} is not active: {why}.", hint=_ASK)


async def handles_jobsets(client: Client) -> bool | None:
    """Return whether Kueue handles JobSets, by its configuration or its webhook; None where neither may be read."""
    with contextlib.suppress(ApiError, yaml.YAMLError, KeyError, TypeError):
        config = await objects.get(client, _CONFIG_MAPS, "kueue-manager-config", namespace="kueue-system")
        settings = yaml.safe_load(config["data"]["controller_manager_config.yaml"])
        return "jobset.x-k8s.io/jobset" in settings["integrations"]["frameworks"]
    with contextlib.suppress(ApiError):
        webhooks = await objects.get(client, _WEBHOOKS, "kueue-mutating-webhook-configuration")
        return any("jobset" in each["name"] for each in webhooks.get("webhooks") or ())
    return None


async def served(client: Client, resource: Resource) -> Resource:
    """Return a kind of Kueue's in the version that the cluster prefers; what is read here is the same in all.

    Raises:
      ApiError: The cluster does not have it (404).
    """
    versions = _versions.setdefault(client, {})
    if resource.group not in versions:
        versions[resource.group] = str((await client.get(f"/apis/{resource.group}"))["preferredVersion"]["version"])
    return replace(resource, version=versions[resource.group])


async def waiting(client: Client, job: Object) -> str:
    """Return what a job waits for in its queue, as a sentence; empty if it is admitted, or in no queue.

    Args:
      job: The Job or JobSet with the label.
    """
    if not queue_of(job):
        return ""
    try:
        own = next(iter(await _workloads(client, job["metadata"]["namespace"], job["metadata"]["uid"])), None)
        return "" if own is not None and is_admitted(own) else await _said(client, job, own)
    except ApiError as error:
        return _unknown(job, error)


async def until_admitted(client: Client, job: Object, *, seconds: float = math.inf) -> AsyncGenerator[str, None]:
    """Yield what a job waits for in its queue, whenever that changes, until Kueue has admitted it.

    Raises:
      TimeoutError: It has not after `seconds`.
      ServiceError: The job was deleted.
      ApiError: Reading Workloads is forbidden, or the cluster has no Kueue.
      ClusterError: The cluster could not be reached at the start.
    """
    kind, metadata, loop = await served(client, WORKLOADS), job["metadata"], asyncio.get_running_loop()
    deadline, before = loop.time() + seconds, ""
    workload: Object | None = None
    selector = f"{names.QUEUED_UID_LABEL}={metadata['uid']}"
    async with WatchGroup({kind: watch(client, kind, namespace=metadata["namespace"], labels=selector)}) as changes:
        while True:
            # With jitter: a queue may be long.
            pause = _POSITION_SECONDS * random.uniform(0.8, 1.2)
            news = await changes.batch(min(pause, deadline - loop.time()))
            for _, change in news:
                if change.object and _is_of(change.object, metadata["uid"]):
                    workload = change.object if change.type is not ChangeType.DELETED else None
            if workload is not None and is_admitted(workload):
                return
            if loop.time() >= deadline:
                raise TimeoutError
            try:
                # The Workload goes with the job.
                if workload is None and await _is_deleted(client, job):
                    what = f"{job['kind']} {metadata['name']} was deleted while it waited in queue {queue_of(job)}."
                    raise ServiceError(what, hint="Start it again.")
                said = await _said(client, job, workload)
            except ClusterError as error:
                # The watch goes on when the server is back, and the job has kept its place in the queue.
                said = _unknown(job, error)
            if workload is None and not news:
                said = f"Kueue has not taken this up; it may not handle a {job['kind']} in this namespace."
            if said != before:
                before = said
                yield said


async def set_active(client: Client, job: Object, *, active: bool) -> None:
    """Suspend a job that is in a queue, or put it into the queue again.

    Raises:
      ServiceError: Kueue has made no Workload for it.
      ApiError: It is forbidden.
    """
    metadata = job["metadata"]
    own = await _workloads(client, metadata["namespace"], metadata["uid"])
    if not own:
        raise ServiceError(f"Kueue has not taken up {metadata['name']}.", hint="Delete it to take it from the queue.")
    kind, name = await served(client, WORKLOADS), own[0]["metadata"]["name"]
    await objects.patch(client, kind, name, {"spec": {"active": active}}, namespace=metadata["namespace"])


def is_admitted(workload: Object) -> bool:
    """Return whether Kueue lets the job of a Workload run now."""
    return objects.true_condition(workload, "Admitted") is not None and not objects.true_condition(workload, "Evicted")


async def evicted(client: Client, workload: Object) -> str | None:
    """Return why Kueue has evicted a job, and for whom; None if it has not."""
    condition = objects.true_condition(workload, "Evicted")
    if condition is None:
        return None
    message = untrusted.text(condition.get("message"))
    named = _PREEMPTED.search(message) if condition.get("reason") == "Preempted" else None
    if named is None:
        return f"Kueue has evicted it: {message.rstrip('.')}"
    others = await _workloads(client, workload["metadata"]["namespace"], named["uid"])
    owners = [owner for each in others for owner in each["metadata"].get("ownerReferences") or ()]
    by = f"{owners[0].get('kind')} {owners[0].get('name')}" if owners else "a job that is gone or not in this namespace"
    return f"Preempted by {untrusted.text(by)}, {named['why'] or 'for its priority'}"


def _unknown(job: Object, error: ClusterError) -> str:
    return f"In queue {queue_of(job)}; what Kueue says cannot be read: {error}"


async def _said(client: Client, job: Object, workload: Object | None) -> str:
    """Return what a job that is not admitted waits for."""
    queue, reasons = queue_of(job), list[str]()
    if workload is not None:
        if (eviction := await evicted(client, workload)) is not None:
            reasons.append(eviction)
        if workload["spec"].get("active") is False:
            reasons.append("suspended by a user")
        reasons += _shortages(workload)
        if position := await _position(client, job):
            return f"Position {position} in queue {queue}: {'; '.join(reasons)}."
    return f"In queue {queue}: {'; '.join(reasons) or 'being considered'}."


def _shortages(workload: Object) -> list[str]:
    """Return why Kueue does not admit a Workload, in its words: quota that is short, or checks that are pending."""
    status = workload.get("status") or {}
    if objects.true_condition(workload, "QuotaReserved"):
        pending = [each for each in status.get("admissionChecks") or () if each.get("state") != "Ready"]
        return [
            untrusted.text(f"check {each.get('name')}: {each.get('message') or each.get('state')}") for each in pending
        ]
    conditions = [each for each in status.get("conditions") or () if each.get("type") == "QuotaReserved"]
    messages = [untrusted.text(each.get("message")).rstrip(".") for each in conditions]
    return [each for each in messages if each and not _PREEMPTED.search(each)]


async def _position(client: Client, job: Object) -> int:
    """Return the position of a job in its queue, from 1; 0 where that cannot be known."""
    try:
        kind = await served(client, VISIBLE_QUEUES)
        path = kind.item(job["metadata"]["namespace"], queue_of(job), "pendingworkloads")
        pending = (await client.get(path)).get("items") or ()
    except ApiError:
        # The API is an option of Kueue's, and may be forbidden.
        return 0
    return next((number for number, each in enumerate(pending, 1) if _is_of(each, job["metadata"]["uid"])), 0)


async def _is_deleted(client: Client, job: Object) -> bool:
    """Return whether a job is gone, or going; another one of its name does not count."""
    metadata, resource = job["metadata"], JOBS if job["kind"] == JOBS.kind else JOBSETS
    now = await objects.find(client, resource, metadata["name"], namespace=metadata["namespace"])
    return now is None or now["metadata"]["uid"] != metadata["uid"] or "deletionTimestamp" in now["metadata"]


async def _workloads(client: Client, namespace: str, uid: str) -> list[Object]:
    """Return the Workloads of the job `uid`."""
    kind, selector = await served(client, WORKLOADS), f"{names.QUEUED_UID_LABEL}={uid}"
    listed = await objects.list_(client, kind, namespace=namespace, labels=selector)
    return [each for each in listed.items if _is_of(each, uid)]


def _is_of(workload: Mapping[str, Any], uid: str) -> bool:
    """Return whether Kueue made the Workload for the job `uid`: the label alone could be anyone's."""
    return any(each.get("uid") == uid for each in workload["metadata"].get("ownerReferences") or ())
