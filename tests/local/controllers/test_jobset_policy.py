"""Policies of JobSets, decided from the Jobs' states alone."""

from __future__ import annotations

import pytest

from pathways_jupyter.local.controllers.jobset import Verdict, judge, startable, succeeded
from pathways_jupyter.service import names

REPLICATED = ("head", 1), ("worker", 2)


def job(replicated: str, index: int = 0, state: str = "", *, reason: str = "", message: str = "", at: str = "1"):
    condition = {"type": state, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at}
    return {
        "metadata": {"name": f"s-{replicated}-{index}", "labels": {names.REPLICATED_JOB_LABEL: replicated}},
        "status": {"conditions": [condition]} if state else {},
    }


def jobset(**spec):
    return {"spec": {"replicatedJobs": [{"name": name, "replicas": count} for name, count in REPLICATED], **spec}}


def rules(*rules, restarts: int = 3):
    return jobset(failurePolicy={"maxRestarts": restarts, "rules": list(rules)})


LOST = job("worker", 1, "Failed", reason="BackoffLimitExceeded", message="pod lost")


def test_without_a_failed_job_nothing_is_decided():
    assert judge(rules(), {}, [job("head"), job("worker", 0, "Complete")]) == (Verdict.GO_ON, "", "")


def test_without_a_policy_a_failed_job_fails_the_jobset():
    expected = (Verdict.FAIL, "FailedJobs", "job s-worker-1 failed: pod lost")
    assert judge(jobset(), {}, [job("head"), LOST]) == expected


def test_the_job_that_failed_first_is_the_reason():
    later = job("head", 0, "Failed", message="consequence", at="2026-01-01T00:00:02Z")
    first = job("worker", 0, "Failed", message="cause", at="2026-01-01T00:00:01Z")
    assert judge(jobset(), {}, [later, first])[2] == "job s-worker-0 failed: cause"


@pytest.mark.parametrize(("counted", "verdict"), [(0, Verdict.RESTART), (2, Verdict.RESTART), (3, Verdict.FAIL)])
def test_restarts_are_counted_against_the_policys_number(counted, verdict):
    found, reason, message = judge(rules(), {"restartsCountTowardsMax": counted}, [LOST])
    assert (found, reason) == (verdict, "Restarting" if verdict is Verdict.RESTART else "ReachedMaxRestarts")
    assert message.endswith("maximum number of restarts reached") is (verdict is Verdict.FAIL)


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        ({}, True),
        ({"onJobFailureReasons": ["BackoffLimitExceeded"]}, True),
        ({"onJobFailureReasons": ["DeadlineExceeded"]}, False),
        ({"onJobFailureMessagePatterns": ["^pod .*"]}, True),
        ({"onJobFailureMessagePatterns": ["^lost"]}, False),
        ({"targetReplicatedJobs": ["worker"]}, True),
        ({"targetReplicatedJobs": ["head"]}, False),
        ({"onJobFailureReasons": ["BackoffLimitExceeded"], "targetReplicatedJobs": ["head"]}, False),
    ],
)
def test_a_rule_has_to_fit_in_all_that_it_names(rule, fits):
    verdict, reason, _ = judge(rules({"action": "FailJobSet", **rule}), {}, [LOST])
    assert (verdict, reason) == (
        (Verdict.FAIL, "FailJobSetFailurePolicyAction") if fits else (Verdict.RESTART, "Restarting")
    )


def test_the_first_rule_that_fits_decides_and_may_restart_without_limit():
    policy = rules({"action": "RestartJobSetAndIgnoreMaxRestarts"}, {"action": "FailJobSet"}, restarts=0)
    assert judge(policy, {"restartsCountTowardsMax": 9}, [LOST])[0] is Verdict.RESTART_FREELY


@pytest.mark.parametrize(
    ("policy", "complete", "expected"),
    [
        ({}, ("head", "worker", "worker"), True),
        ({}, ("head", "worker"), False),
        ({"operator": "Any"}, ("worker",), True),
        ({"operator": "Any"}, (), False),
        ({"operator": "All", "targetReplicatedJobs": ["head"]}, ("head",), True),
        ({"operator": "All", "targetReplicatedJobs": ["head"]}, ("worker", "worker"), False),
        ({"operator": "Any", "targetReplicatedJobs": ["head"]}, ("worker",), False),
    ],
)
def test_success_is_of_all_or_any_of_the_target_jobs(policy, complete, expected):
    jobs = [job(name, number, "Complete") for number, name in enumerate(complete)]
    assert succeeded(jobset(successPolicy=policy), [*jobs, job("other")]) is expected


def counts(**ready):
    return {name: {"ready": ready.get(name, 0), "succeeded": 0} for name, _ in REPLICATED}


def test_in_order_each_waits_for_those_before_it():
    ordered = jobset(startupPolicy={"startupPolicyOrder": "InOrder"})
    head, worker = ordered["spec"]["replicatedJobs"]
    assert startable(ordered, head, counts())
    assert not startable(ordered, worker, counts())
    assert startable(ordered, worker, counts(head=1))
    assert startable(ordered, worker, {**counts(), "head": {"ready": 0, "succeeded": 1}})
    assert startable(jobset(), worker, counts())
