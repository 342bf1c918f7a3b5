from __future__ import annotations

import pytest

from pathways_jupyter.base.text import parse_ranges, ranges
from pathways_jupyter.local import settings
from pathways_jupyter.local.apiserver.resources import CONFIG_MAPS, EVENTS, JOBS, PODS
from pathways_jupyter.local.controllers.job import JobController
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.local.settings import RetryDelay
from pathways_jupyter.service import names

SLEEP = ("sleep", "600")


def holds(kind, reason=None):
    def test(job):
        return job is not None and any(
            each["type"] == kind and each["status"] == "True" and reason in (None, each["reason"])
            for each in job["status"].get("conditions", ())
        )

    return test


def count(**wanted):
    return lambda job: job is not None and wanted.items() <= job["status"].items()


async def test_a_job_completes_when_its_pod_has_succeeded(controlled):
    controlled.job("once", "true")
    job = await controlled.until(holds("Complete"), "once", JOBS)
    assert job["status"]["succeeded"] == 1
    assert job["status"]["active"] == 0
    assert job["status"]["startTime"] <= job["status"]["completionTime"]
    [pod] = controlled.pods(**{names.JOB_NAME_LABEL: "once"})
    assert "finalizers" not in pod["metadata"] or not pod["metadata"]["finalizers"]
    assert {"SuccessfulCreate", "Completed"} <= {event["reason"] for event in controlled.store.list(EVENTS)}


async def test_a_job_of_no_pods_is_complete(controlled):
    controlled.job("none", "true", completions=0)
    await controlled.until(holds("Complete"), "none", JOBS)
    assert not controlled.pods(**{names.JOB_NAME_LABEL: "none"})


async def test_the_pods_of_an_indexed_job_know_their_index(controlled):
    script = "echo index $JOB_COMPLETION_INDEX of $HOSTNAME"
    controlled.job("many", "sh", "-c", script, completions=3, parallelism=2, completionMode="Indexed")
    job = await controlled.until(holds("Complete"), "many", JOBS)
    assert job["status"]["completedIndexes"] == "0-2"
    pods = controlled.pods(**{names.JOB_NAME_LABEL: "many"})
    assert sorted(pod["metadata"]["name"][:-6] for pod in pods) == ["many-0", "many-1", "many-2"]
    for pod in pods:
        index = pod["metadata"]["labels"][names.POD_INDEX_LABEL]
        assert await controlled.logs(pod["metadata"]["name"]) == f"index {index} of many-{index}\n"


async def test_a_job_fails_when_too_many_pods_have(controlled):
    controlled.job("bad", "false", backoffLimit=1)
    job = await controlled.until(holds("Failed", "BackoffLimitExceeded"), "bad", JOBS)
    assert job["status"]["failed"] == 2


async def test_restarts_of_containers_count_as_failures_too(controlled):
    controlled.job("bad", "false", backoffLimit=0, restartPolicy="OnFailure")
    await controlled.until(holds("Failed", "BackoffLimitExceeded"), "bad", JOBS)
    await controlled.until_pods(lambda pods: not pods)


async def test_a_deleted_pod_is_replaced_and_counted(controlled):
    controlled.job("steady", *SLEEP)
    await controlled.until(count(ready=1), "steady", JOBS)
    [before] = controlled.pods()
    controlled.store.delete(PODS, "default", before["metadata"]["name"])
    await controlled.until(count(ready=1, failed=1), "steady", JOBS)
    await controlled.until_gone(before["metadata"]["name"])
    [after] = controlled.pods()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


def test_the_wait_before_the_next_pod_is_kubernetes_own():
    assert [settings.JOB_RESTARTS.wait(failures) for failures in range(9)] == [0, 10, 20, 40, 80, 160, 320, 600, 600]
    assert [settings.CONTAINER_RESTARTS.wait(failures) for failures in range(8)] == [0, 0, 10, 20, 40, 80, 160, 300]
    assert [settings.FAST_RESTARTS.wait(failures) for failures in range(5)] == [0, 0, 1, 2, 2]
    assert settings.FAST_RESTARTS.wait(100) == 2


async def test_a_pod_that_failed_is_not_replaced_before_its_time(machine):
    job = JobController(machine.store, Recorder(machine.store))
    job.start()
    machine.job("steady", *SLEEP, hollow=True)
    [pod] = await machine.until_pods(lambda pods: len(pods) == 1)

    machine.store.delete(PODS, "default", pod["metadata"]["name"], grace=0)

    # With a wait of nothing the Job would have its next pod in the very status in which the loss is counted.
    await machine.until(count(failed=1, active=0), "steady", JOBS)
    await machine.until_pods(lambda pods: not pods)
    await job.close()


@pytest.mark.parametrize(("forgotten", "waits"), [(0.0, False), (600.0, True)])
async def test_failures_of_long_ago_are_forgotten_where_that_is_asked_for(machine, forgotten, waits):
    job = JobController(machine.store, Recorder(machine.store), backoff=RetryDelay(600.0, 600.0, 1, forgotten))
    job.start()
    machine.job("steady", *SLEEP, hollow=True)
    for failed in (1, 2):
        [pod] = await machine.until_pods(lambda pods: len(pods) == 1 and "deletionTimestamp" not in pods[0]["metadata"])
        machine.store.delete(PODS, "default", pod["metadata"]["name"], grace=0)
        await machine.until(count(failed=failed), "steady", JOBS)

    await machine.until(count(failed=2, active=0 if waits else 1), "steady", JOBS)
    await job.close()


@pytest.mark.parametrize(("policy", "active"), [("Failed", 0), ("TerminatingOrFailed", 1)])
async def test_a_job_may_wait_for_a_pods_end_before_it_starts_the_next(controlled, policy, active):
    stubborn = ("sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done")
    controlled.job("slow", *stubborn, podReplacementPolicy=policy)
    await controlled.until(count(ready=1), "slow", JOBS)
    [pod] = controlled.pods()
    name = pod["metadata"]["name"]
    controlled.store.delete(PODS, "default", name, grace=600)
    await controlled.until(count(terminating=1, active=active), "slow", JOBS)
    controlled.store.delete(PODS, "default", name, grace=0)
    await controlled.until(count(failed=1, ready=1, terminating=0), "slow", JOBS)
    assert [each["metadata"]["name"] != name for each in controlled.pods()] == [True]


async def test_deleting_the_only_pod_of_a_job_without_retries_fails_it(controlled):
    controlled.job("proxy", *SLEEP, backoffLimit=0)
    await controlled.until(count(ready=1), "proxy", JOBS)
    [pod] = controlled.pods()
    controlled.store.delete(PODS, "default", pod["metadata"]["name"], grace=0)
    await controlled.until(holds("Failed", "BackoffLimitExceeded"), "proxy", JOBS)


async def test_a_job_past_its_deadline_is_ended(controlled):
    controlled.job("late", *SLEEP, activeDeadlineSeconds=1)
    await controlled.until(holds("Failed", "DeadlineExceeded"), "late", JOBS)
    await controlled.until_pods(lambda pods: not pods)


async def test_a_finished_job_goes_when_its_time_has_come(controlled):
    controlled.job("short", "true", ttlSecondsAfterFinished=0)
    await controlled.until_gone("short", JOBS)
    await controlled.until_pods(lambda pods: not pods)


async def test_a_suspended_job_runs_nothing_until_it_is_resumed(controlled):
    controlled.job("paused", *SLEEP, suspend=True)
    await controlled.until(holds("Suspended"), "paused", JOBS)
    assert not controlled.pods()
    controlled.store.edit(JOBS, "default", "paused", lambda job: job["spec"].update(suspend=False))
    await controlled.until(count(ready=1), "paused", JOBS)
    controlled.store.edit(JOBS, "default", "paused", lambda job: job["spec"].update(suspend=True))
    await controlled.until(holds("Suspended"), "paused", JOBS)
    await controlled.until_pods(lambda pods: not pods)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_the_pods_of_a_deleted_job_go_with_it(controlled, propagation):
    controlled.job("doomed", *SLEEP)
    await controlled.until(count(ready=1), "doomed", JOBS)
    controlled.store.delete(JOBS, "default", "doomed", propagation=propagation)
    await controlled.until_gone("doomed", JOBS)
    if propagation == "Foreground":
        assert not controlled.pods()
    await controlled.until_pods(lambda pods: not pods)


async def test_the_pods_of_an_orphaning_delete_stay(controlled):
    controlled.job("parent", *SLEEP, hollow=True)
    await controlled.until(count(ready=1), "parent", JOBS)
    controlled.store.delete(JOBS, "default", "parent", propagation="Orphan")
    await controlled.until_gone("parent", JOBS)
    [pod] = await controlled.until_pods(lambda pods: not pods[0]["metadata"].get("ownerReferences"))
    assert "deletionTimestamp" not in pod["metadata"]


async def test_a_field_that_is_not_served_fails_the_job(controlled):
    controlled.job("odd", *SLEEP, podFailurePolicy={"rules": []})
    await controlled.until(holds("Failed", "NotSupported"), "odd", JOBS)


async def test_objects_without_a_living_owner_are_collected(controlled):
    job = controlled.job("owner", *SLEEP, hollow=True)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": job["metadata"]["uid"]}
    other = {**reference, "name": "other", "uid": "none"}
    controlled.create(CONFIG_MAPS, "orphan", metadata={"ownerReferences": [other]})
    controlled.create(CONFIG_MAPS, "half", metadata={"ownerReferences": [reference, other]})
    await controlled.until_gone("orphan", CONFIG_MAPS)
    await controlled.until(lambda obj: len(obj["metadata"]["ownerReferences"]) == 1, "half", CONFIG_MAPS)
    controlled.store.delete(JOBS, "default", "owner", propagation="Background")
    await controlled.until_gone("half", CONFIG_MAPS)


@pytest.mark.parametrize(
    ("text", "indexes"), [("", set()), ("0", {0}), ("0,1", {0, 1}), ("0-2,5", {0, 1, 2, 5}), ("1,3-5", {1, 3, 4, 5})]
)
def test_indexes_are_written_as_ranges(text, indexes):
    assert parse_ranges(text) == indexes
    assert ranges(indexes) == text
