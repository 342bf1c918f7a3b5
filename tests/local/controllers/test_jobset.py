from __future__ import annotations

import asyncio

import pytest

from pathways_jupyter.base import tpu
from pathways_jupyter.local.apiserver.resources import EVENTS, JOBS, JOBSETS, SERVICES
from pathways_jupyter.local.settings import HOLLOW_ANNOTATION
from pathways_jupyter.service import names, service_jobset

SLEEP = ["sleep", "600"]


def replicated(name, *command, replicas=1, pods=1, hollow=False, **job):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "command": [*command]}]}}
    if hollow:
        template["metadata"] = {"annotations": {HOLLOW_ANNOTATION: "true"}}
    spec = {"completions": pods, "parallelism": pods, "completionMode": "Indexed", "backoffLimit": 0, **job}
    return {"name": name, "replicas": replicas, "template": {"spec": {**spec, "template": template}}}


def holds(kind):
    return lambda obj: (
        obj is not None
        and any(
            each["type"] == kind and each["status"] == "True" for each in obj.get("status", {}).get("conditions", ())
        )
    )


def ready(pods):
    return pods and all(holds("Ready")(pod) for pod in pods)


async def test_jobs_pods_and_names_are_those_that_clients_look_for(controlled):
    manifest = service_jobset.manifest(
        service_jobset.ServiceSpec(tpu.parse_instance_type("tpuv6e:2x4"), 1, "server:latest")
    )
    for each in manifest["spec"]["replicatedJobs"]:
        metadata = each["template"]["spec"]["template"].setdefault("metadata", {})
        metadata.setdefault("annotations", {})[HOLLOW_ANNOTATION] = "true"
    controlled.store.create(JOBSETS, manifest)
    await controlled.until(holds("StartupPolicyCompleted"), "pathways-cluster", JOBSETS)
    pods = controlled.pods(**{names.JOBSET_NAME_LABEL: "pathways-cluster"})
    assert sorted(pod["metadata"]["name"][:-6] for pod in pods) == [
        "pathways-cluster-pathways-head-0-0",
        "pathways-cluster-worker-0-0",
        "pathways-cluster-worker-0-1",
    ]
    for pod in pods:
        spec, labels = pod["spec"], pod["metadata"]["labels"]
        assert spec["hostname"] == pod["metadata"]["name"][:-6]
        assert spec["subdomain"] == "pathways-cluster"
        assert labels[names.COORDINATOR_LABEL] == service_jobset.head_host("pathways-cluster")
        assert labels[names.JOB_INDEX_LABEL] == "0"
        assert labels[names.REPLICATED_JOB_REPLICAS_LABEL] == "1"
    workers = [pod for pod in pods if pod["metadata"]["labels"][names.REPLICATED_JOB_LABEL] == "worker"]
    assert sorted(pod["spec"]["nodeName"] for pod in workers) == ["tpuv6e-2x4-0-0", "tpuv6e-2x4-0-1"]
    service = controlled.store.get(SERVICES, "default", "pathways-cluster")
    assert service["spec"]["clusterIP"] == "None"
    controlled.store.delete(JOBSETS, "default", "pathways-cluster")
    await controlled.until_gone("pathways-cluster", JOBSETS)
    await controlled.until_gone("pathways-cluster-worker-0", JOBS)
    await controlled.until_gone("pathways-cluster", SERVICES)
    await controlled.until_pods(lambda left: not left)


@pytest.mark.parametrize(
    ("pod", "kind", "said"),
    [
        # A Job cannot have it, so none is made.
        ({"volumeMounts": [{"name": "data", "mountPath": "/d"}]}, "JobSet", 'volumeMounts[0].name: Not found: "data"'),
        ({"command": ["sleep", 1]}, "JobSet", "command[1]: expected a string, got a number"),
        # Only a pod is held against the namespace.
        ({}, "Job", 'pods "stuck-head-0-0-" is forbidden: error looking up service account default/missing'),
    ],
)
async def test_what_cannot_be_made_is_an_event_of_the_object_that_should_make_it(controlled, pod, kind, said):
    head = replicated("head", *SLEEP)
    template = head["template"]["spec"]["template"]["spec"]
    template["containers"][0] |= pod
    template["serviceAccountName"] = "missing"
    controlled.create(JOBSETS, "stuck", spec={"replicatedJobs": [head]})

    watch = controlled.store.watch(EVENTS)
    async with asyncio.timeout(60):
        while not (events := [each for each in controlled.store.list(EVENTS) if each["type"] == "Warning"]):
            await watch.batch()
    watch.close()
    [event] = events
    assert event["involvedObject"]["kind"] == kind
    assert event["reason"] == {"JobSet": "JobCreationFailed", "Job": "FailedCreate"}[kind]
    assert said in event["message"]


async def test_the_second_part_starts_only_once_the_first_is_ready(controlled):
    wait = {"readinessProbe": {"exec": {"command": ["test", "-e", "go"]}}}
    head = replicated("head", "sh", "-c", "exec sleep 600")
    head["template"]["spec"]["template"]["spec"]["containers"][0].update(wait)
    spec = {"replicatedJobs": [head, replicated("tail", *SLEEP)], "startupPolicy": {"startupPolicyOrder": "InOrder"}}
    controlled.create(JOBSETS, "ordered", spec=spec)
    await controlled.until(holds("StartupPolicyInProgress"), "ordered", JOBSETS)
    [pod] = await controlled.until_pods(lambda pods: pods and pods[0]["status"]["phase"] == "Running")
    assert "-head-0-0-" in pod["metadata"]["name"]
    go = await controlled.kubelet.exec(pod["metadata"]["uid"], "", ["touch", "go"], stdin=False, tty=False)
    assert await go.wait() == 0
    await controlled.until(holds("StartupPolicyCompleted"), "ordered", JOBSETS)
    assert len(await controlled.until_pods(ready)) == 2


async def test_a_failed_job_restarts_all_until_too_often(controlled):
    # The worker's Job fails the second time too; one restart is allowed.
    jobs = [replicated("head", *SLEEP), replicated("worker", "false")]
    controlled.create(JOBSETS, "fragile", spec={"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": 1}})
    done = await controlled.until(holds("Failed"), "fragile", JOBSETS)
    assert done["status"]["restarts"] == 1
    assert done["status"]["terminalState"] == "Failed"
    head = await controlled.until(
        lambda job: job is None or "deletionTimestamp" in job["metadata"], "fragile-head-0", JOBS
    )
    assert head is None or "deletionTimestamp" in head["metadata"]
    await controlled.until_gone("fragile-head-0", JOBS)


@pytest.mark.parametrize(
    ("action", "outcome"), [("FailJobSet", "Failed"), ("RestartJobSetAndIgnoreMaxRestarts", "Completed")]
)
async def test_a_rule_decides_before_the_limit_does(controlled, tmp_path, action, outcome):
    script = f"test -e {tmp_path}/again || {{ touch {tmp_path}/again; exit 1; }}"
    rule = {"name": "r", "action": action, "targetReplicatedJobs": ["worker"]}
    controlled.create(
        JOBSETS,
        "ruled",
        spec={
            "replicatedJobs": [replicated("worker", "sh", "-c", script)],
            "failurePolicy": {"maxRestarts": 0, "rules": [rule]},
        },
    )
    await controlled.until(holds(outcome), "ruled", JOBSETS)


async def test_success_may_depend_on_one_part_only(controlled):
    jobs = [replicated("head", "true"), replicated("worker", *SLEEP)]
    policy = {"operator": "All", "targetReplicatedJobs": ["head"]}
    controlled.create(JOBSETS, "led", spec={"replicatedJobs": jobs, "successPolicy": policy})
    done = await controlled.until(holds("Completed"), "led", JOBSETS)
    assert done["status"]["terminalState"] == "Completed"
    await controlled.until_gone("led-worker-0", JOBS)


async def test_a_finished_jobset_goes_when_its_time_has_come(controlled):
    spec = {"replicatedJobs": [replicated("only", "true")], "ttlSecondsAfterFinished": 0}
    controlled.create(JOBSETS, "short", spec=spec)
    await controlled.until_gone("short", JOBSETS)
    await controlled.until_pods(lambda pods: not pods)


async def test_a_suspended_jobset_suspends_its_jobs(controlled):
    spec = {"replicatedJobs": [replicated("only", *SLEEP, hollow=True)], "suspend": True}
    controlled.create(JOBSETS, "paused", spec=spec)
    await controlled.until(holds("Suspended"), "paused", JOBSETS)
    controlled.store.edit(JOBSETS, "default", "paused", lambda obj: obj["spec"].update(suspend=False))
    await controlled.until_pods(ready)
    controlled.store.edit(JOBSETS, "default", "paused", lambda obj: obj["spec"].update(suspend=True))
    await controlled.until_pods(lambda pods: not pods)
