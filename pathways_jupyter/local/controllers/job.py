"""Job controller: run pods until enough of them have succeeded, or too many have failed.

Served: Indexed and NonIndexed completion, parallelism, backoffLimit, activeDeadlineSeconds, suspend,
ttlSecondsAfterFinished. Each pod carries a finalizer until its end has been counted, so that a deleted pod counts too.
A Job with a pod failure policy, a success policy or a limit per index fails at once with reason NotSupported.
"""

from __future__ import annotations

from collections.abc import Sequence

from pathways_jupyter.base import text
from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.base.text import parse_ranges
from pathways_jupyter.local.apiserver.object_lifecycle import LONGEST_STEM, pod_is_over
from pathways_jupyter.local.apiserver.object_schema import check_object
from pathways_jupyter.local.apiserver.patch import clone
from pathways_jupyter.local.apiserver.resources import JOBS, PODS, Object
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.strategy import now
from pathways_jupyter.local.apiserver.watch_delivery import WatchEvent, WatchEventType
from pathways_jupyter.local.apiserver.workload_strategy import sidecars
from pathways_jupyter.local.controllers.reconciler import (
    Key,
    Reconciler,
    condition,
    expire,
    finished,
    itself,
    key_of,
    owned,
    owned_by,
    reference_to,
    set_condition,
    until,
)
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.local.settings import JOB_RESTARTS, Failures, RetryDelay
from pathways_jupyter.service import names

TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer of a pod whose end has not been counted."""

_UNSERVED = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes")


class JobController(Reconciler):
    """Reconciles every Job's pods and status.

    Args:
      backoff: Wait before a failed pod is replaced.
    """

    def __init__(self, store: Store, recorder: Recorder, *, backoff: RetryDelay = JOB_RESTARTS) -> None:
        super().__init__(store, {JOBS: self._of_job, PODS: owned_by("Job")})
        self._backoff = backoff
        self._recorder = recorder
        self._pod_failures: dict[str, Failures] = {}

    def reconcile(self, key: Key) -> float | None:
        """Reconcile one Job's pods and status; return the seconds after which to look again, or None."""
        job = self._store.find(JOBS, *key)
        if job is None:
            return None
        pods = owned(self._store, job, PODS)
        if "deletionTimestamp" in job["metadata"]:
            self._pod_failures.pop(job["metadata"]["uid"], None)
            self._release(pods)
            return None
        before = job.get("status", {})
        status: Object = clone(before)
        ended = [pod for pod in pods if _ended(pod) and TRACKING in (pod["metadata"].get("finalizers") or ())]
        self._count(job, status, ended)
        again = None
        if (over := finished(status)) is not None:
            self._clear(pods)
            again = expire(self._store, JOBS, job, over)
        else:
            again = self._advance(job, status, pods)
        if status != before:
            self._store.update(JOBS, {**job, "status": status}, subresource="status")
        # Only after the count has been written: a crash in between would lose the pods' results.
        self._release(ended)
        return again

    def _of_job(self, change: WatchEvent) -> Sequence[Key]:
        if change.type is WatchEventType.DELETED:
            # The ends of its pods will not be counted any more, so no finalizer may hold them back.
            self._release(
                [pod for kind, pod in self._store.dependents(change.object["metadata"]["uid"]) if kind.key == PODS.key]
            )
        return itself(change)

    # Counting.

    def _count(self, job: Object, status: Object, ended: Sequence[Object]) -> None:
        completed = parse_ranges(status.get("completedIndexes", ""))
        indexed = job["spec"]["completionMode"] == "Indexed"
        for pod in ended:
            if pod["status"].get("phase") == "Succeeded":
                if indexed:
                    completed.add(_index(pod))
                else:
                    status["succeeded"] = status.get("succeeded", 0) + 1
                self._pod_failures.pop(job["metadata"]["uid"], None)
            else:
                status["failed"] = status.get("failed", 0) + 1
                self._pod_failures.setdefault(job["metadata"]["uid"], Failures(self._backoff)).add()
        if indexed and completed:
            status["completedIndexes"] = text.ranges(completed)
            status["succeeded"] = len(completed)

    def _release(self, pods: Sequence[Object]) -> None:
        """Remove the finalizer of pods whose end has been counted."""

        def untrack(pod: Object) -> None:
            pod["metadata"]["finalizers"] = [each for each in pod["metadata"]["finalizers"] if each != TRACKING]

        for pod in pods:
            if TRACKING in (pod["metadata"].get("finalizers") or ()):
                self._store.edit(PODS, *key_of(pod), untrack)

    # Running.

    def _advance(self, job: Object, status: Object, pods: Sequence[Object]) -> float | None:
        spec = job["spec"]
        active = [pod for pod in pods if not _ended(pod) and "deletionTimestamp" not in pod["metadata"]]
        terminating = [pod for pod in pods if not _ended(pod) and "deletionTimestamp" in pod["metadata"]]
        again: float | None = None
        failure = self._failure(job, status, active)
        if failure is None and spec.get("suspend"):
            # Not counted when they end: a pod that the Job itself has stopped is no failure.
            self._release(active)
            self._clear(active)
            active = []
            status.pop("startTime", None)
            if not condition(status, "Suspended"):
                set_condition(status, "Suspended", True, reason="JobSuspended", message="Job suspended")
                self._recorder.record(job, "job-controller", "Suspended", "Job suspended")
        elif failure is None:
            if condition(status, "Suspended"):
                set_condition(status, "Suspended", False, reason="JobResumed", message="Job resumed")
                self._recorder.record(job, "job-controller", "Resumed", "Job resumed")
            status.setdefault("startTime", now())
            again = self._fill(job, status, active, terminating)
            pods = owned(self._store, job, PODS)
            active = [pod for pod in pods if not _ended(pod) and "deletionTimestamp" not in pod["metadata"]]
        status["active"] = len(active)
        status["terminating"] = len(terminating)
        status["ready"] = sum(1 for pod in active if condition(pod.get("status", {}), "Ready"))
        completions = spec.get("completions")
        needed = 1 if completions is None else completions
        if failure is not None:
            self._finish(job, status, active, "Failed", *failure)
        elif status.get("succeeded", 0) >= needed and (completions is not None or not active):
            message = "Reached expected number of succeeded pods"
            self._finish(job, status, active, "Complete", "CompletionsReached", message)
        waits = [each for each in (again, self._until_deadline(job, status)) if each is not None]
        return min(waits, default=None)

    def _failure(self, job: Object, status: Object, active: Sequence[Object]) -> tuple[str, str] | None:
        spec = job["spec"]
        if unserved := [each for each in _UNSERVED if spec.get(each) is not None]:
            return "NotSupported", f"the embedded cluster does not serve {', '.join(unserved)} of a Job"
        retries = status.get("failed", 0)
        if spec["template"]["spec"].get("restartPolicy") == "OnFailure":
            for pod in active:
                beside = {each["name"] for each in sidecars(pod["spec"])}
                retries += sum(
                    each.get("restartCount", 0)
                    for kind in ("containerStatuses", "initContainerStatuses")
                    for each in pod.get("status", {}).get(kind) or ()
                    if each["name"] not in beside
                )
        if retries > spec["backoffLimit"]:
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        left = self._until_deadline(job, status)
        if left is not None and left <= 0:
            return "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    def _fill(
        self, job: Object, status: Object, active: Sequence[Object], terminating: Sequence[Object]
    ) -> float | None:
        """Start missing pods and end surplus ones; return the seconds after which to look again, or None."""
        spec = job["spec"]
        parallelism, completions = spec["parallelism"], spec.get("completions")
        succeeded = status.get("succeeded", 0)
        if completions is None:
            room = parallelism - len(active) if not succeeded else 0
        else:
            room = min(parallelism, completions - succeeded) - len(active)
        if spec.get("podReplacementPolicy") == "Failed":
            room -= len(terminating)
        if room < 0:
            self._clear(active[room:])
        if room <= 0:
            return None
        failures = self._pod_failures.get(job["metadata"]["uid"])
        if failures is not None and (left := failures.left) > 0:
            return left
        if spec["completionMode"] != "Indexed":
            for _ in range(room):
                self._create(job, None)
            return None
        used = {_index(pod) for pod in active} | parse_ranges(status.get("completedIndexes", ""))
        missing = [index for index in range(completions or 0) if index not in used]
        for index in missing[:room]:
            self._create(job, index)
        return None

    def _create(self, job: Object, index: int | None) -> None:
        template = clone(job["spec"]["template"])
        metadata = template.setdefault("metadata", {})
        name = job["metadata"]["name"]
        # As in Kubernetes: a template's own name counts for nothing, and a long name loses its end and not the index.
        metadata.pop("name", None)
        end = "-" if index is None else f"-{index}-"
        metadata["generateName"] = f"{name[: LONGEST_STEM - len(end)]}{end}"
        if index is not None:
            metadata.setdefault("annotations", {})[names.POD_INDEX_LABEL] = str(index)
            metadata.setdefault("labels", {})[names.POD_INDEX_LABEL] = str(index)
            template["spec"].setdefault("hostname", f"{name}-{index}")
            for kind in ("initContainers", "containers"):
                for container in template["spec"].get(kind) or ():
                    variables = container.setdefault("env", [])
                    if not any(each["name"] == "JOB_COMPLETION_INDEX" for each in variables):
                        path = {"fieldPath": f"metadata.labels['{names.POD_INDEX_LABEL}']"}
                        variables.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": path}})
        metadata["ownerReferences"] = [reference_to(job)]
        metadata["finalizers"] = [TRACKING]
        try:
            # As if it were posted: what a pod cannot be is said here, and not by the node that cannot run it.
            pod, _ = check_object(PODS, {"metadata": metadata, "spec": template["spec"]}, "Ignore")
            pod = self._store.create(PODS, pod, namespace=job["metadata"]["namespace"])
        except ApiError as error:
            self._recorder.record(job, "job-controller", "FailedCreate", f"Error creating: {error}", warning=True)
            raise
        self._recorder.record(job, "job-controller", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")

    # Ending.

    def _finish(
        self, job: Object, status: Object, active: Sequence[Object], kind: str, reason: str, message: str
    ) -> None:
        self._clear(active)
        set_condition(status, kind, True, reason=reason, message=message)
        if kind == "Complete":
            status["completionTime"] = now()
        status.update(active=0, ready=0)
        self._recorder.record(
            job,
            "job-controller",
            "Completed" if kind == "Complete" else reason,
            "Job completed" if kind == "Complete" else message,
            warning=kind == "Failed",
        )

    def _clear(self, pods: Sequence[Object]) -> None:
        for pod in pods:
            if not _ended(pod) and "deletionTimestamp" not in pod["metadata"]:
                self._store.delete(PODS, *key_of(pod), uid=pod["metadata"]["uid"])

    def _until_deadline(self, job: Object, status: Object) -> float | None:
        seconds, began = job["spec"].get("activeDeadlineSeconds"), status.get("startTime")
        return None if seconds is None or began is None else until(began, seconds)


def pods_at_once(spec: Object) -> int:
    """Return the number of pods of a Job that run at the same time, once all can."""
    parallelism: int = spec.get("parallelism", 1)
    return min(parallelism, spec.get("completions") or parallelism)


def _ended(pod: Object) -> bool:
    """Return whether no process of the pod will run any more."""
    metadata = pod["metadata"]
    return pod_is_over(pod) or ("deletionTimestamp" in metadata and not metadata.get("deletionGracePeriodSeconds"))


def _index(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(names.POD_INDEX_LABEL, -1))
