"""The part of Kueue that the embedded cluster evaluates."""

from __future__ import annotations

import asyncio

import pytest

from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.custom import check_custom
from pathways_jupyter.local.apiserver.definitions import (
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    PRIORITIES,
    WORKLOADS,
)
from pathways_jupyter.local.apiserver.resources import JOBSETS
from pathways_jupyter.local.controllers.kueue import KueueController, pending
from pathways_jupyter.local.controllers.reconciler import condition
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.local.settings import HOLLOW_ANNOTATION

DEADLINE = 30.0


def cluster_queue(quota, **spec):
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    groups = [{"coveredResources": list(quota), "flavors": [{"name": "plain", "resources": resources}]}]
    preemption = {"withinClusterQueue": "LowerPriority"}
    return {"resourceGroups": groups, "namespaceSelector": {}, "preemption": preemption, **spec}


class Queues:
    """Jobs in one queue, whose quota is four CPUs."""

    def __init__(self, machine):
        self.machine, self.store = machine, machine.store
        self.store.create(FLAVORS, {"metadata": {"name": "plain"}, "spec": {}})
        self.store.create(CLUSTER_QUEUES, {"metadata": {"name": "all"}, "spec": cluster_queue({"cpu": "4"})})
        self.store.create(LOCAL_QUEUES, {"metadata": {"name": "team"}, "spec": {"clusterQueue": "all"}})
        for name, value in (("low", 1), ("high", 10)):
            self.store.create(PRIORITIES, {"metadata": {"name": name}, "value": value})

    def submit(self, name, cpu="4", *, priority="", queue="team", command=("sleep", "600"), hollow=True):
        labels = {"kueue.x-k8s.io/queue-name": queue}
        labels |= {"kueue.x-k8s.io/priority-class": priority} if priority else {}
        container = {"name": "c", "image": "x", "command": [*command], "resources": {"requests": {"cpu": cpu}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        if hollow:
            template["metadata"] = {"annotations": {HOLLOW_ANNOTATION: "true"}}
        part = {"name": "only", "replicas": 1, "template": {"spec": {"backoffLimit": 0, "template": template}}}
        self.machine.create(JOBSETS, name, metadata={"labels": labels}, spec={"replicatedJobs": [part]})

    def workload(self, name):
        return next(
            (each for each in self.store.list(WORKLOADS) if each["metadata"]["ownerReferences"][0]["name"] == name),
            None,
        )

    async def until(self, name, kind, status="True"):
        """Wait until the Workload of a job has a condition, and return it."""

        def found():
            conditions = ((self.workload(name) or {}).get("status") or {}).get("conditions") or ()
            return next((each for each in conditions if (each["type"], each["status"]) == (kind, status)), None)

        watch = self.store.watch(WORKLOADS)
        try:
            async with asyncio.timeout(DEADLINE):
                while found() is None:
                    await watch.batch()
        except TimeoutError:
            raise AssertionError(self.workload(name)) from None
        finally:
            watch.close()
        return found()


@pytest.fixture
async def queues(controlled):
    controller = KueueController(controlled.store, Recorder(controlled.store))
    found = Queues(controlled)
    controller.start()
    yield found
    await asyncio.wait_for(controller.close(), DEADLINE)


async def test_a_job_waits_until_there_is_quota_and_says_what_is_short(queues, tmp_path):
    release = tmp_path / "release"
    queues.submit("first", hollow=False, command=("sh", "-c", f"until [ -e {release} ]; do sleep 0.05; done"))
    await queues.until("first", "Admitted")
    queues.submit("second", cpu="3")
    waiting = await queues.until("second", "QuotaReserved", "False")
    words = "couldn't assign flavors to pod set only: insufficient unused quota for cpu in flavor plain, 3 more needed"
    assert (waiting["reason"], waiting["message"]) == ("Pending", words)
    assert queues.store.get(JOBSETS, "default", "second")["spec"]["suspend"] is True
    (item,) = pending(queues.store, "default", "team")["items"]
    assert (item["positionInLocalQueue"], item["metadata"]["ownerReferences"][0]["name"]) == (0, "second")
    # The first one ends by itself, and that frees its quota.
    release.touch()
    assert (await queues.until("first", "Finished"))["reason"] == "Succeeded"
    await queues.until("second", "Admitted")
    await queues.machine.until_pods(lambda pods: len(pods) == 1, **{"jobset.sigs.k8s.io/jobset-name": "second"})
    assert not pending(queues.store, "default", "team")["items"]


async def test_a_job_that_is_deleted_leaves_the_queue(queues):
    queues.submit("first")
    await queues.until("first", "Admitted")
    queues.submit("second")
    await queues.until("second", "QuotaReserved", "False")
    name = queues.workload("second")["metadata"]["name"]
    queues.store.delete(JOBSETS, "default", "second")
    await queues.machine.until_gone(name, WORKLOADS)
    queues.submit("third", cpu="1")
    queues.store.delete(JOBSETS, "default", "first")
    await queues.until("third", "Admitted")


async def test_a_higher_priority_evicts_and_the_evicted_job_comes_back(queues):
    queues.submit("cheap", priority="low")
    await queues.until("cheap", "Admitted")
    await queues.machine.until_pods(lambda pods: len(pods) == 1)
    queues.submit("dear", priority="high")
    evicted = await queues.until("cheap", "Evicted")
    assert queues.workload("dear")["metadata"]["uid"] in evicted["message"]
    await queues.until("dear", "Admitted")
    assert not condition(queues.workload("cheap")["status"], "QuotaReserved")
    queues.store.delete(JOBSETS, "default", "dear")
    await queues.until("cheap", "Admitted")
    back = await queues.until("cheap", "Evicted", "False")
    assert back["message"].startswith("Previously: Preempted to accommodate")
    labels = {"jobset.sigs.k8s.io/jobset-name": "cheap"}
    await queues.machine.until_pods(lambda pods: len(pods) == 1, **labels)


async def test_a_workload_that_is_made_inactive_gives_its_quota_back(queues):
    queues.submit("paused")
    await queues.until("paused", "Admitted")
    name = queues.workload("paused")["metadata"]["name"]
    queues.store.edit(WORKLOADS, "default", name, lambda each: each["spec"].update(active=False))
    await queues.until("paused", "Admitted", "False")
    assert pending(queues.store, "default", "team")["items"] == []
    queues.store.edit(WORKLOADS, "default", name, lambda each: each["spec"].update(active=True))
    await queues.until("paused", "Admitted")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"queue": "nowhere"}, "LocalQueue nowhere doesn't exist"),
        ({"cpu": "5"}, "request > maximum capacity (4)"),
    ],
)
async def test_a_job_that_can_never_be_admitted_says_why(queues, given, why):
    queues.submit("stuck", **given)
    assert why in (await queues.until("stuck", "QuotaReserved", "False"))["message"]


@pytest.mark.parametrize("spec", [None, {}, {"replicatedJobs": [{"name": "only", "template": {}}]}])
async def test_a_job_that_can_have_no_pods_does_not_keep_others_from_being_admitted(queues, spec):
    body = {} if spec is None else {"spec": spec}
    queues.machine.create(JOBSETS, "empty", metadata={"labels": {"kueue.x-k8s.io/queue-name": "team"}}, **body)
    queues.submit("fine")
    await queues.until("fine", "Admitted")


async def test_the_queues_count_what_is_in_them(queues):
    queues.submit("first", cpu="1500m")
    await queues.until("first", "Admitted")
    queues.submit("second")
    await queues.until("second", "QuotaReserved", "False")
    found = await queues.machine.until(
        lambda queue: queue["status"].get("pendingWorkloads"), "team", LOCAL_QUEUES, "default"
    )
    used = [{"name": "plain", "resources": [{"name": "cpu", "total": "1500m"}]}]
    assert (found["status"]["admittedWorkloads"], found["status"]["flavorsReservation"]) == (1, used)
    assert condition(found["status"], "Active")


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        (CLUSTER_QUEUES, cluster_queue({"cpu": 1}, cohort="everyone"), "cohort"),
        (CLUSTER_QUEUES, cluster_queue({"cpu": 1}, admissionChecks=["prov"]), "admissionChecks"),
        (CLUSTER_QUEUES, cluster_queue({"cpu": 1}, preemption={"reclaimWithinCohort": "Any"}), "reclaimWithinCohort"),
        (LOCAL_QUEUES, {"clusterQueue": "all", "stopPolicy": "Hold"}, "stopPolicy"),
        (FLAVORS, {"nodeLabels": {"a": "b"}}, "nodeLabels"),
        (CLUSTER_QUEUES, cluster_queue({"cpu": "lots"}), "nominalQuota"),
        (CLUSTER_QUEUES, None, "spec: Required value"),
        (LOCAL_QUEUES, None, "spec: Required value"),
        (PRIORITIES, None, "value: Required value"),
    ],
)
async def test_what_is_not_evaluated_is_refused(queues, kind, spec, field):
    sent = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "other"}}
    sent |= {} if spec is None else {"spec": spec}
    served = queues.store.resources.find(kind.group, kind.version, kind.plural)
    with pytest.raises(StatusError) as refused:
        # As for a request.
        queues.store.create(kind, check_custom(served, sent, []) | {"metadata": sent["metadata"]})
    assert field in str(refused.value)
