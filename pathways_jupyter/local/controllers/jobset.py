"""JobSet controller: groups of Jobs that start in order, find each other by name, and are restarted together.

Served: startupPolicy, dependsOn, coordinator, network, failurePolicy with rules, successPolicy, suspend,
ttlSecondsAfterFinished. Jobs, pods and labels carry the names that JobSet gives them, because clients look for those.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from enum import Enum

from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.local.apiserver.object_schema import check_object
from pathways_jupyter.local.apiserver.patch import clone
from pathways_jupyter.local.apiserver.resources import JOBS, JOBSETS, SERVICES, Object
from pathways_jupyter.local.apiserver.selectors import labels_of
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.controllers.job import pods_at_once
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
)
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.service import names

JOB_KEY_LABEL = "jobset.sigs.k8s.io/job-key"
RESTART_LABEL = "jobset.sigs.k8s.io/restart-attempt"
GLOBAL_INDEX_LABEL = "jobset.sigs.k8s.io/job-global-index"
UID_LABEL = "jobset.sigs.k8s.io/jobset-uid"


class JobSetController(Reconciler):
    """Reconciles every JobSet's Jobs, service and status."""

    def __init__(self, store: Store, recorder: Recorder) -> None:
        super().__init__(store, {JOBSETS: itself, JOBS: owned_by("JobSet")})
        self._recorder = recorder

    def reconcile(self, key: Key) -> float | None:
        """Reconcile one JobSet's Jobs and status; return the seconds after which to look again, or None."""
        jobset = self._store.find(JOBSETS, *key)
        if jobset is None or "deletionTimestamp" in jobset["metadata"] or jobset["spec"].get("managedBy"):
            return None
        before = jobset.get("status", {})
        status: Object = clone(before)
        status.setdefault("restarts", 0)
        again = None
        if (over := finished(status)) is not None:
            self._delete([job for job in owned(self._store, jobset, JOBS) if not _is_over(job)])
            again = expire(self._store, JOBSETS, jobset, over)
        else:
            self._advance(jobset, status)
        status["replicatedJobsStatus"] = self._count(jobset, status)
        if status != before:
            self._store.update(JOBSETS, {**jobset, "status": status}, subresource="status")
        return again

    def _advance(self, jobset: Object, status: Object) -> None:
        jobs = owned(self._store, jobset, JOBS)
        current = [job for job in jobs if _attempt(job) == status["restarts"]]
        self._delete([job for job in jobs if _attempt(job) < status["restarts"]])
        verdict, reason, message = judge(jobset, status, current)
        if verdict in (Verdict.RESTART, Verdict.RESTART_FREELY):
            status["restarts"] += 1
            if verdict is Verdict.RESTART:
                status["restartsCountTowardsMax"] = status.get("restartsCountTowardsMax", 0) + 1
            self._record(jobset, reason, f"{message}; restart {status['restarts']}", warning=True)
            self._delete(current)
        elif verdict is Verdict.FAIL:
            self._finish(jobset, status, "Failed", reason, message)
        elif succeeded(jobset, current):
            self._finish(jobset, status, "Completed", "AllJobsCompleted", "jobset completed successfully")
        elif jobset["spec"].get("suspend"):
            self._suspend(jobset, status, current, True)
        else:
            self._suspend(jobset, status, current, False)
            self._create_missing(jobset, status)

    # Creating.

    def _create_missing(self, jobset: Object, status: Object) -> None:
        self._create_service(jobset)
        existing = {job["metadata"]["name"] for job in owned(self._store, jobset, JOBS)}
        counts = {each["name"]: each for each in self._count(jobset, status)}
        waiting = False
        for replicated in jobset["spec"].get("replicatedJobs") or ():
            if not startable(jobset, replicated, counts):
                waiting = True
                continue
            for index in range(replicated.get("replicas", 1)):
                # Only what is missing is made: a JobSet of a thousand Jobs is reconciled whenever one of them changes.
                if _job_name(jobset, replicated, index) not in existing:
                    self._create_job(jobset, _job(jobset, replicated, index, status["restarts"]))
        if (jobset["spec"].get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder":
            self._report_startup(jobset, status, waiting)

    def _create_job(self, jobset: Object, job: Object) -> None:
        try:
            job, _ = check_object(JOBS, job, "Ignore")
            self._store.create(JOBS, job, namespace=jobset["metadata"]["namespace"])
        except ApiError as error:
            self._record(jobset, "JobCreationFailed", str(error), warning=True)
            raise

    def _report_startup(self, jobset: Object, status: Object, waiting: bool) -> None:
        counts = {each["name"]: each for each in self._count(jobset, status)}
        started = not waiting and all(
            counts[each["name"]]["ready"] + counts[each["name"]]["succeeded"] >= each.get("replicas", 1)
            for each in jobset["spec"].get("replicatedJobs") or ()
        )
        if started and not condition(status, "StartupPolicyCompleted"):
            message = "all replicated jobs have started"
            self._record(jobset, "StartupPolicyCompleted", message)
            set_condition(status, "StartupPolicyCompleted", True, message=message)
            set_condition(status, "StartupPolicyInProgress", False, message=message)
        elif not started and not condition(status, "StartupPolicyCompleted"):
            message = "in order startup policy is in progress"
            set_condition(status, "StartupPolicyInProgress", True, message=message)

    def _create_service(self, jobset: Object) -> None:
        network = jobset["spec"].get("network") or {}
        if not network.get("enableDNSHostnames", True):
            return
        metadata = jobset["metadata"]
        name = network.get("subdomain") or metadata["name"]
        if self._store.find(SERVICES, metadata["namespace"], name) is None:
            service = {
                "metadata": {"name": name, "ownerReferences": [reference_to(jobset)]},
                "spec": {
                    "clusterIP": "None",
                    "selector": {names.JOBSET_NAME_LABEL: metadata["name"]},
                    "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True),
                },
            }
            self._store.create(SERVICES, service, namespace=metadata["namespace"])

    # Ending and pausing.

    def _finish(self, jobset: Object, status: Object, kind: str, reason: str, message: str) -> None:
        set_condition(status, kind, True, reason=reason, message=message)
        status["terminalState"] = kind
        self._record(jobset, reason, message, warning=kind == "Failed")
        self._delete([job for job in owned(self._store, jobset, JOBS) if not _is_over(job)])

    def _suspend(self, jobset: Object, status: Object, jobs: Sequence[Object], suspend: bool) -> None:
        for job in jobs:
            if bool(job["spec"].get("suspend")) is not suspend and not _is_over(job):
                self._store.edit(JOBS, *key_of(job), lambda copy: copy["spec"].update(suspend=suspend))
        if bool(condition(status, "Suspended")) is not suspend:
            message = "jobset is suspended" if suspend else "jobset is resumed"
            reason = "SuspendedJobs" if suspend else "ResumeJobs"
            set_condition(status, "Suspended", suspend, reason=reason, message=message)
            # A resumed JobSet starts again.
            if not suspend and condition(status, "StartupPolicyCompleted"):
                set_condition(status, "StartupPolicyCompleted", False, message=message)
            self._record(jobset, reason, message)

    def _delete(self, jobs: Sequence[Object]) -> None:
        for job in jobs:
            if "deletionTimestamp" not in job["metadata"]:
                # Foreground, because the new Job has the same name: the old one's pods must be gone before it starts.
                self._store.delete(JOBS, *key_of(job), propagation="Foreground", uid=job["metadata"]["uid"])

    def _count(self, jobset: Object, status: Object) -> list[Object]:
        """Return the ``replicatedJobsStatus`` of the present attempt."""
        counts = {
            each["name"]: dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
            for each in jobset["spec"].get("replicatedJobs") or ()
        }
        for job in owned(self._store, jobset, JOBS):
            count = counts.get(job["metadata"]["labels"][names.REPLICATED_JOB_LABEL])
            if count is None or _attempt(job) != status["restarts"]:
                continue
            spec, state = job["spec"], job.get("status", {})
            if condition(state, "Complete"):
                count["succeeded"] += 1
            elif condition(state, "Failed"):
                count["failed"] += 1
            else:
                count["ready"] += state.get("ready", 0) + state.get("succeeded", 0) >= pods_at_once(spec)
                count["active"] += bool(state.get("active"))
                count["suspended"] += bool(spec.get("suspend"))
        return [{"name": name, **count} for name, count in counts.items()]

    def _record(self, jobset: Object, reason: str, message: str, *, warning: bool = False) -> None:
        self._recorder.record(jobset, "jobset-controller", reason, message, warning=warning)


# Policies.


class Verdict(Enum):
    """Action of a JobSet's failure policy."""

    GO_ON = "GoOn"
    RESTART = "RestartJobSet"
    RESTART_FREELY = "RestartJobSetAndIgnoreMaxRestarts"
    FAIL = "FailJobSet"


def judge(jobset: Object, status: Object, jobs: Sequence[Object]) -> tuple[Verdict, str, str]:
    """Decide what the failed Jobs among `jobs` mean for the JobSet; return the action, its reason and a message."""
    failed = [(job, failure) for job in jobs if (failure := condition(job.get("status", {}), "Failed")) is not None]
    if not failed:
        return Verdict.GO_ON, "", ""
    job, failure = min(failed, key=lambda each: str(each[1]["lastTransitionTime"]))
    replicated = job["metadata"]["labels"][names.REPLICATED_JOB_LABEL]
    message = f"job {job['metadata']['name']} failed: {failure.get('message', '')}"
    policy = jobset["spec"].get("failurePolicy")
    if policy is None:
        return Verdict.FAIL, "FailedJobs", message
    action = Verdict.RESTART
    for rule in policy.get("rules") or ():
        reasons = rule.get("onJobFailureReasons") or ()
        patterns = rule.get("onJobFailureMessagePatterns") or ()
        targets = rule.get("targetReplicatedJobs") or ()
        if (
            (not reasons or failure.get("reason") in reasons)
            and (not patterns or any(re.search(each, failure.get("message", "")) for each in patterns))
            and (not targets or replicated in targets)
        ):
            action = Verdict(rule["action"])
            break
    if action is Verdict.FAIL:
        return action, "FailJobSetFailurePolicyAction", message
    if action is Verdict.RESTART and status.get("restartsCountTowardsMax", 0) >= policy.get("maxRestarts", 0):
        return Verdict.FAIL, "ReachedMaxRestarts", f"{message}; maximum number of restarts reached"
    return action, "Restarting", message


def succeeded(jobset: Object, jobs: Sequence[Object]) -> bool:
    """Return whether the success policy is fulfilled."""
    policy = jobset["spec"].get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs") or ()
    replicas = [
        (each["name"], each.get("replicas", 1))
        for each in jobset["spec"].get("replicatedJobs") or ()
        if not targets or each["name"] in targets
    ]
    done = [
        job["metadata"]["labels"][names.REPLICATED_JOB_LABEL]
        for job in jobs
        if condition(job.get("status", {}), "Complete")
    ]
    if policy.get("operator") == "Any":
        return any(name in done for name, _ in replicas)
    return bool(replicas) and all(done.count(name) >= count for name, count in replicas)


def startable(jobset: Object, replicated: Object, counts: Mapping[str, Object]) -> bool:
    """Return whether everything that a replicated job has to wait for is ready."""
    spec = jobset["spec"]
    if (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder":
        for each in spec["replicatedJobs"]:
            if each["name"] == replicated["name"]:
                break
            if counts[each["name"]]["ready"] + counts[each["name"]]["succeeded"] < each.get("replicas", 1):
                return False
    return True


# Jobs.


def _job_name(jobset: Object, replicated: Object, index: int) -> str:
    return f"{jobset['metadata']['name']}-{replicated['name']}-{index}"


def _job(jobset: Object, replicated: Object, index: int, restarts: int) -> Object:
    """Return one Job of a replicated job."""
    metadata, spec = jobset["metadata"], jobset["spec"]
    network = spec.get("network") or {}
    earlier = itertools.takewhile(lambda each: each["name"] != replicated["name"], spec["replicatedJobs"])
    before = sum(each.get("replicas", 1) for each in earlier)
    name = _job_name(jobset, replicated, index)
    marks = {
        names.JOBSET_NAME_LABEL: metadata["name"],
        UID_LABEL: metadata["uid"],
        names.REPLICATED_JOB_LABEL: replicated["name"],
        names.REPLICATED_JOB_REPLICAS_LABEL: str(replicated.get("replicas", 1)),
        names.JOB_INDEX_LABEL: str(index),
        GLOBAL_INDEX_LABEL: str(before + index),
        JOB_KEY_LABEL: hashlib.sha1(f"{metadata['namespace']}/{name}".encode()).hexdigest(),
        RESTART_LABEL: str(restarts),
    }
    annotations = dict(marks)
    subdomain = network.get("subdomain") or metadata["name"]
    if coordinator := spec.get("coordinator"):
        # The DNS name of the pod that the others coordinate with.
        host = f"{coordinator['replicatedJob']}-{coordinator.get('jobIndex', 0)}-{coordinator.get('podIndex', 0)}"
        address = annotations[names.COORDINATOR_LABEL] = f"{metadata['name']}-{host}.{subdomain}"
        if len(address) <= 63:
            marks[names.COORDINATOR_LABEL] = address
    template = clone(replicated["template"])
    job_spec = template.get("spec", {})
    pod = job_spec.setdefault("template", {})
    own, pod_own = template.get("metadata") or {}, pod.get("metadata") or {}
    policies = own.get("annotations") or {}
    annotations |= {key: value for key, value in policies.items() if key.startswith("alpha.jobset.sigs.k8s.io/")}
    pod["metadata"] = {
        **pod_own,
        "labels": {**(pod_own.get("labels") or {}), **marks},
        "annotations": {**(pod_own.get("annotations") or {}), **annotations},
    }
    if network.get("enableDNSHostnames", True):
        pod.setdefault("spec", {})["subdomain"] = subdomain
    job_spec["suspend"] = bool(spec.get("suspend"))
    return {
        "metadata": {
            "name": name,
            "labels": {**(own.get("labels") or {}), **marks},
            "annotations": {**(own.get("annotations") or {}), **annotations},
            "ownerReferences": [reference_to(jobset)],
        },
        "spec": job_spec,
    }


def _attempt(job: Object) -> int:
    return int(labels_of(job).get(RESTART_LABEL, 0))


def _is_over(job: Object) -> bool:
    return finished(job.get("status", {})) is not None
