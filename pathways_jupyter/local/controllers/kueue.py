"""Kueue's admission, as far as it is served here: queues with one flavor and its quota, priorities, preemption.

A Job or JobSet with a queue's label gets a Workload, and stays suspended until its ClusterQueue has room for the
requests of all its pods. There is no webhook: a labelled job that is created unsuspended is suspended a moment later.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from pathways_jupyter.local.apiserver.definitions import (
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    PRIORITIES,
    WORKLOADS,
)
from pathways_jupyter.local.apiserver.patch import clone
from pathways_jupyter.local.apiserver.resources import JOBS, JOBSETS, VISIBLE_QUEUES, Object, ResourceType
from pathways_jupyter.local.apiserver.selectors import labels_of
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.watch_delivery import WatchEvent
from pathways_jupyter.local.apiserver.workload_strategy import sidecars
from pathways_jupyter.local.controllers.job import pods_at_once
from pathways_jupyter.local.controllers.reconciler import (
    EVERYTHING,
    Key,
    Reconciler,
    condition,
    everything,
    finished,
    reference_to,
    set_condition,
)
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.service import builtin_kinds, names

Amounts = Counter[str]
"""Thousandths of each resource."""


class KueueController(Reconciler):
    """Admits the jobs of all queues."""

    def __init__(self, store: Store, recorder: Recorder) -> None:
        kinds = (WORKLOADS, LOCAL_QUEUES, CLUSTER_QUEUES, FLAVORS, PRIORITIES)
        super().__init__(store, {JOBS: _labelled, JOBSETS: _labelled} | dict.fromkeys(kinds, everything))
        self._recorder = recorder

    def reconcile(self, key: Key) -> None:
        """Bring Workloads, jobs and the status of the queues to the desired state."""
        jobs = [
            (kind, job)
            for kind in (JOBS, JOBSETS)
            for job in self._store.list(kind)
            if names.QUEUE_LABEL in labels_of(job) and job.get("spec") and "deletionTimestamp" not in job["metadata"]
        ]
        # Their status is changed in place, and written at the end.
        workloads = [self._workload(kind, job) for kind, job in jobs]
        for workload, (_, job) in zip(workloads, jobs, strict=True):
            _follow_job(workload["status"], job, active=workload["spec"]["active"])
        for queue in self._store.list(CLUSTER_QUEUES):
            self._admit(queue, [each for each in workloads if self._cluster_queue(each) == queue["metadata"]["name"]])
        for workload, (kind, job) in zip(workloads, jobs, strict=True):
            self._cluster_queue(workload)
            self._store.update(WORKLOADS, workload, subresource="status")
            suspend = not condition(workload["status"], "Admitted") or bool(condition(workload["status"], "Evicted"))
            if bool(job["spec"].get("suspend")) is not suspend and not condition(workload["status"], "Finished"):
                self._store.update(kind, {**job, "spec": {**job["spec"], "suspend": suspend}})
        for kind in (LOCAL_QUEUES, CLUSTER_QUEUES):
            for queue in self._store.list(kind):
                self._summarize(kind, queue, workloads)

    def _workload(self, kind: ResourceType, job: Object) -> Object:
        """Return a copy of the Workload of a job; it is created if there is none."""
        metadata, marks = job["metadata"], labels_of(job)
        # The same name for the same job, so that it cannot get two.
        digest = hashlib.sha256(metadata["uid"].encode()).hexdigest()[:5]
        name = f"{kind.kind.lower()}-{metadata['name']}"[:57] + f"-{digest}"
        workload = self._store.find(WORKLOADS, metadata["namespace"], name)
        if workload is None:
            spec: Object = {"queueName": marks[names.QUEUE_LABEL], "podSets": _pod_sets(job), "priority": 0}
            if priority := self._store.find(PRIORITIES, "", marks.get(names.PRIORITY_LABEL, "")):
                spec["priority"] = priority["value"]
            marked = {names.QUEUED_UID_LABEL: metadata["uid"]}
            meta = {"name": name, "labels": marked, "ownerReferences": [reference_to(job)]}
            workload = self._store.create(WORKLOADS, {"metadata": meta, "spec": spec}, namespace=metadata["namespace"])
        return {"status": {}, **clone(workload)}

    def _cluster_queue(self, workload: Object) -> str:
        """Return the queue whose quota a Workload has or waits for; empty when there is none."""
        if holds(workload):
            # Also when its LocalQueue is gone.
            return str(workload["status"]["admission"]["clusterQueue"])
        name = workload["spec"]["queueName"]
        local = self._store.find(LOCAL_QUEUES, workload["metadata"]["namespace"], name)
        cluster = str(local["spec"]["clusterQueue"]) if local else ""
        if local and self._store.find(CLUSTER_QUEUES, "", cluster):
            return cluster
        if waits(workload):
            _refuse(workload, f"ClusterQueue {cluster} doesn't exist" if local else f"LocalQueue {name} doesn't exist")
        return ""

    def _admit(self, queue: Object, members: Sequence[Object]) -> None:
        name, flavor, quota = queue["metadata"]["name"], *_quota(queue)
        preempts = (queue["spec"].get("preemption") or {}).get("withinClusterQueue") == "LowerPriority"
        for each in sorted(filter(waits, members), key=_order):
            if self._store.find(FLAVORS, "", flavor) is None:
                _refuse(each, f"ClusterQueue {name} is inactive")
                continue
            holding = list(filter(holds, members))
            misfit = _misfit(each, quota, holding, flavor)
            if not misfit:
                _reserve(each, name)
                self._recorder.record(each, "kueue", "Admitted", f"Admitted by ClusterQueue {name}")
                continue
            victims = _victims(each, quota, holding, flavor) if preempts else []
            wait = f". Pending the preemption of {len(victims)} workload(s)" if victims else ""
            _refuse(each, f"couldn't assign flavors to pod set {misfit}{wait}", "Pending")
            ids = f"UID: {each['metadata']['uid']}, JobUID: {labels_of(each)[names.QUEUED_UID_LABEL]}"
            message = f"Preempted to accommodate a workload ({ids}) due to prioritization in the ClusterQueue"
            for victim in victims:
                if not condition(victim["status"], "Evicted"):
                    set_condition(victim["status"], "Evicted", True, reason="Preempted", message=message)
                    set_condition(victim["status"], "Preempted", True, reason="InClusterQueue", message=message)
                    self._recorder.record(victim, "kueue", "Preempted", message)
            if victims:
                # What becomes free is for this one.
                return

    def _summarize(self, kind: ResourceType, queue: Object, workloads: Iterable[Object]) -> None:
        """Write the number of Workloads, and what they use, into the status of a queue."""
        metadata, cluster = queue["metadata"], queue["spec"].get("clusterQueue") or queue["metadata"]["name"]
        home = self._store.find(CLUSTER_QUEUES, "", cluster)
        flavor, quota = _quota(home) if home else ("", Amounts())
        own = [each for each in workloads if self._cluster_queue(each) == cluster]
        if kind is LOCAL_QUEUES:
            key = metadata["namespace"], metadata["name"]
            own = [each for each in own if (each["metadata"]["namespace"], each["spec"]["queueName"]) == key]
        held = list(filter(holds, own))
        resources = [{"name": name, "total": _text(_used(held)[name])} for name in quota]
        status: Object = {
            "conditions": clone((queue.get("status") or {}).get("conditions") or []),
            "pendingWorkloads": sum(map(waits, own)),
            "admittedWorkloads": len(held),
            "flavorsReservation": [{"name": flavor, "resources": resources}] if flavor else [],
        }
        active = self._store.find(FLAVORS, "", flavor) is not None
        message = "Can submit new workloads" if active else f"ClusterQueue {cluster} is not there, or has no flavor"
        set_condition(status, "Active", active, reason="Ready" if active else "FlavorNotFound", message=message)
        self._store.update(kind, {**queue, "status": status}, subresource="status")


def holds(workload: Object) -> bool:
    """Return whether it counts against the quota: also while it is evicted, until its pods are gone."""
    return bool(condition(workload["status"], "QuotaReserved")) and not condition(workload["status"], "Finished")


def waits(workload: Object) -> bool:
    """Return whether it has a position in its queue."""
    decided = any(condition(workload.get("status") or {}, kind) for kind in ("QuotaReserved", "Finished"))
    return not decided and bool(workload["spec"]["active"])


def pending(store: Store, namespace: str, queue: str) -> Object:
    """Return the answer of Kueue's visibility API: the Workloads that wait in a LocalQueue, in order.

    Raises:
      StatusError: 404, there is no such queue.
    """
    cluster, items = store.record(LOCAL_QUEUES, namespace, queue).object["spec"]["clusterQueue"], list[Object]()
    for position, each in enumerate(sorted(filter(waits, store.list(WORKLOADS)), key=_order)):
        metadata, name = each["metadata"], each["spec"]["queueName"]
        local = store.find(LOCAL_QUEUES, metadata["namespace"], name)
        if local is None or local["spec"]["clusterQueue"] != cluster:
            continue
        if (metadata["namespace"], name) == (namespace, queue):
            meta = {key: metadata[key] for key in ("name", "namespace", "ownerReferences")}
            positions = {"positionInClusterQueue": position, "positionInLocalQueue": len(items)}
            items.append({"metadata": meta, "priority": each["spec"]["priority"], "localQueueName": name, **positions})
    return {"kind": "PendingWorkloadsSummary", "apiVersion": VISIBLE_QUEUES.api_version, "items": items}


def _labelled(change: WatchEvent) -> Sequence[Key]:
    return EVERYTHING if names.QUEUE_LABEL in labels_of(change.object) else ()


def _follow_job(status: Object, job: Object, *, active: bool) -> None:
    """Bring the status of a Workload up to date with its job."""
    theirs, reserved = job.get("status") or {}, condition(status, "QuotaReserved")
    if over := finished(theirs):
        reason = "Failed" if over["type"] == "Failed" else "Succeeded"
        set_condition(status, "Finished", True, reason=reason, message=over.get("message", ""))
        return
    if reserved and not active and not condition(status, "Evicted"):
        set_condition(status, "Evicted", True, reason="Deactivated", message="The workload is deactivated")
    has_pods = theirs.get("active") or any(part.get("active") for part in theirs.get("replicatedJobsStatus") or ())
    if reserved and (evicted := condition(status, "Evicted")) and condition(theirs, "Suspended") and not has_pods:
        set_condition(status, "QuotaReserved", False, reason="Pending", message=evicted["message"])
        set_condition(status, "Admitted", False, reason="NoReservation", message="The workload has no reservation")
        del status["admission"]


def _refuse(workload: Object, message: str, reason: str = "Inadmissible") -> None:
    set_condition(workload["status"], "QuotaReserved", False, reason=reason, message=message)


def _reserve(workload: Object, queue: str) -> None:
    status = workload["status"]
    status["admission"] = {"clusterQueue": queue}
    set_condition(status, "QuotaReserved", True, message=f"Quota reserved in ClusterQueue {queue}")
    set_condition(status, "Admitted", True, message="The workload is admitted")
    for kind in ("Evicted", "Preempted"):
        if (before := condition(status, kind)) is not None:
            message = f"Previously: {before['message']}"
            set_condition(status, kind, False, reason="QuotaReserved", message=message)


def _pod_sets(job: Object) -> list[Object]:
    """Return the pods of a Job, or of each replicated job of a JobSet."""
    pod_sets = []
    for part in job["spec"].get("replicatedJobs") or [{"name": "main", "template": job}]:
        # A JobSet is taken whose template is empty: its Jobs are refused.
        spec = part["template"].get("spec") or {}
        count = part.get("replicas", 1) * pods_at_once(spec)
        pod_sets.append({"name": part["name"], "count": count, "template": spec.get("template") or {}})
    return pod_sets


def _requests(pod_sets: Iterable[Object]) -> Amounts:
    """Return the sum of what the pods request."""
    total = Amounts()
    for pod_set in pod_sets:
        pod = pod_set["template"].get("spec") or {}
        for container in (*sidecars(pod), *(pod.get("containers") or ())):
            resources = container.get("resources") or {}
            for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
                total[name] += pod_set["count"] * _amount(amount)
    return total


def _used(workloads: Iterable[Object]) -> Amounts:
    return _requests(each for workload in workloads for each in workload["spec"]["podSets"])


def _quota(queue: Object) -> tuple[str, Amounts]:
    """Return the name and the quota of a ClusterQueue's only flavor."""
    for flavor in (flavor for group in queue["spec"]["resourceGroups"] for flavor in group["flavors"]):
        return flavor["name"], Amounts({each["name"]: _amount(each["nominalQuota"]) for each in flavor["resources"]})
    return "", Amounts()


def _misfit(workload: Object, quota: Amounts, holding: Iterable[Object], flavor: str) -> str:
    """Return the reason why there is no room beside those that hold quota, in Kueue's words; empty when there is."""
    used, own = _used(holding), workload["spec"]["podSets"]
    for name, amount in _requests(own).items():
        part = next(each["name"] for each in own if name in _requests([each]))
        if name not in quota:
            return f"{part}: resource {name} unavailable in ClusterQueue"
        if amount > quota[name]:
            most = _text(quota[name])
            return f"{part}: insufficient quota for {name} in flavor {flavor}, request > maximum capacity ({most})"
        if (more := used[name] + amount - quota[name]) > 0:
            return f"{part}: insufficient unused quota for {name} in flavor {flavor}, {_text(more)} more needed"
    return ""


def _victims(workload: Object, quota: Amounts, holding: Sequence[Object], flavor: str) -> list[Object]:
    """Return those whose eviction makes room, lowest priority and then newest first; empty where none would."""
    victims = [each for each in holding if condition(each["status"], "Evicted")]
    lower = [each for each in holding if each not in victims and _order(each)[0] > _order(workload)[0]]
    lower.sort(key=_order)
    while _misfit(workload, quota, [each for each in holding if each not in victims], flavor):
        if not lower:
            return []
        victims.append(lower.pop())
    return victims


def _order(workload: Object) -> tuple[int, str, str]:
    metadata = workload["metadata"]
    return -workload["spec"]["priority"], metadata["creationTimestamp"], metadata["uid"]


def _amount(quantity: object) -> int:
    return round(builtin_kinds.amount(quantity) * 1000)


def _text(amount: int) -> str:
    return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
