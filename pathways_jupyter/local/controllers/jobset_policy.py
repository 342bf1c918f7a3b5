"""Policies of a JobSet: startup order, success, and the consequence of a failed Job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum

from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.controllers.reconciler import condition
from pathways_jupyter.service import names


class Verdict(Enum):
    """Action of the failure policy."""

    GO_ON = "GoOn"
    RESTART = "RestartJobSet"
    RESTART_FREELY = "RestartJobSetAndIgnoreMaxRestarts"
    FAIL = "FailJobSet"


def judge(jobset: Object, status: Object, jobs: Sequence[Object]) -> tuple[Verdict, str, str]:
    """Decide what the failed Jobs among `jobs` mean for the JobSet; return the action, its reason and a message."""
    failed = [(job, found) for job in jobs if (found := condition(job.get("status", {}), "Failed")) is not None]
    if not failed:
        return Verdict.GO_ON, "", ""
    job, found = min(failed, key=lambda each: str(each[1]["lastTransitionTime"]))
    replicated = job["metadata"]["labels"][names.REPLICATED_JOB_LABEL]
    message = f"job {job['metadata']['name']} failed: {found.get('message', '')}"
    policy = jobset["spec"].get("failurePolicy")
    if policy is None:
        return Verdict.FAIL, "FailedJobs", message
    action = Verdict.RESTART
    for rule in policy.get("rules") or ():
        reasons = rule.get("onJobFailureReasons") or ()
        patterns = rule.get("onJobFailureMessagePatterns") or ()
        targets = rule.get("targetReplicatedJobs") or ()
        if (
            (not reasons or found.get("reason") in reasons)
            and (not patterns or any(re.search(each, found.get("message", "")) for each in patterns))
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
    replicas = {each["name"]: each.get("replicas", 1) for each in spec["replicatedJobs"]}
    if (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder":
        for each in spec["replicatedJobs"]:
            if each["name"] == replicated["name"]:
                break
            if counts[each["name"]]["ready"] + counts[each["name"]]["succeeded"] < replicas[each["name"]]:
                return False
    for dependency in replicated.get("dependsOn") or ():
        count = counts.get(dependency["name"])
        if count is None:
            return False
        done = count["succeeded"] + (count["ready"] if dependency.get("status") == "Ready" else 0)
        if done < replicas[dependency["name"]]:
            return False
    return True
