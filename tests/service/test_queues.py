"""Facts from Kueue's objects, as Kueue writes them, on an API server without Kueue's controller."""

import asyncio
import contextlib

import pytest
from kinds import CONFIG_MAPS, CRDS

from pathways_jupyter.base.errors import ServiceError
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, JOBSETS
from pathways_jupyter.service import checks, names, proxy_job, queues
from pathways_jupyter.service.pathwaysjob import expansion, submission


def condition(kind, status, message="", reason="Pending"):
    return {"type": kind, "status": status, "reason": reason, "message": message}


async def job_in_queue(client, name="j"):
    container = {"name": "c", "image": "x"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    about = {"name": name, "namespace": "default", "labels": queues.labels("team")}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": {"suspend": True, "template": template}}
    return await objects.create(client, JOBS, body)


async def workload(client, job, *conditions, owner=None, **status):
    owner = owner or objects.owner(job, controller=True)
    marks = {names.QUEUED_UID_LABEL: job["metadata"]["uid"]}
    about = {"name": f"job-{owner['name']}", "namespace": "default", "labels": marks, "ownerReferences": [owner]}
    kind = queues.WORKLOADS
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": about, "spec": {"queueName": "team"}}
    await objects.create(client, kind, body)
    change = {"status": {"conditions": list(conditions), **status}}
    path = kind.item("default", about["name"], "status")
    await client.request("PATCH", path, body=change, content_type="application/merge-patch+json")


SHORT = condition("QuotaReserved", "False", "couldn't assign flavors to pod set main: insufficient unused quota.")
RESERVED = condition("QuotaReserved", "True", "Quota reserved in ClusterQueue all")
FOREIGN = "Preempted to accommodate a workload (UID: u, JobUID: gone) due to reclamation within the cohort; path: /a"


@pytest.mark.parametrize(
    ("conditions", "status", "said"),
    [
        ((), {}, "In queue team: being considered."),
        ((SHORT,), {}, "In queue team: couldn't assign flavors to pod set main: insufficient unused quota."),
        (
            (RESERVED,),
            {"admissionChecks": [{"name": "dws", "state": "Pending", "message": "waiting for nodes"}]},
            "In queue team: check dws: waiting for nodes.",
        ),
        (
            (condition("Evicted", "True", FOREIGN, "Preempted"), SHORT),
            {},
            "In queue team: Preempted by a job that is gone or not in this namespace, reclamation within the cohort; "
            "couldn't assign flavors to pod set main: insufficient unused quota.",
        ),
        (
            (condition("Evicted", "True", "Exceeded the PodsReady timeout.", "PodsReadyTimeout"), SHORT),
            {},
            "In queue team: Kueue has evicted it: Exceeded the PodsReady timeout; "
            "couldn't assign flavors to pod set main: insufficient unused quota.",
        ),
        ((RESERVED, condition("Admitted", "True")), {}, ""),
        (
            (RESERVED, condition("Admitted", "True"), condition("Evicted", "False", "Previously: Preempted")),
            {},
            "",
        ),
    ],
)
async def test_the_reason_of_a_wait_is_in_the_words_of_kueue(client, conditions, status, said):
    job = await job_in_queue(client)
    await workload(client, job, *conditions, **status)
    assert await queues.waiting(client, job) == said


async def test_a_job_that_its_queue_has_started_goes_on_when_it_is_applied_again(client):
    await local_queue(client)
    job = submission.new("again", {"tpuv6e:2x2": 1}, queue="team")

    async def apply():
        done = await submission.apply(client, job, namespace="default", as_jobset=True)
        jobset = await objects.get(client, JOBSETS, "again", namespace="default")
        return done, jobset["spec"]["suspend"]

    assert await apply() == ("created", True)
    await objects.patch(client, JOBSETS, "again", {"spec": {"suspend": False}}, namespace="default")
    assert await apply() == ("unchanged", False)


async def test_a_workload_that_anyone_has_labelled_is_not_believed(client):
    job = await job_in_queue(client)
    other = objects.owner(await job_in_queue(client, "other"), controller=True)
    await workload(client, job, RESERVED, condition("Admitted", "True"), owner=other)
    assert await queues.waiting(client, job) == "In queue team: being considered."


async def test_what_may_not_be_read_is_said(bench, client):
    job = await job_in_queue(client)
    blind = bench.client(rules=[{"nonResourceURLs": ["/apis/*"], "verbs": ["get"]}], name="blind")
    assert "what Kueue says cannot be read: You are not allowed to list workloads" in await queues.waiting(blind, job)


async def test_a_wait_outlasts_a_server_that_is_away_and_says_meanwhile_that_nothing_is_known(bench, client):
    patient = bench.client(patience=0.2)
    job = await job_in_queue(client)
    await workload(client, job, SHORT)
    async with contextlib.aclosing(queues.until_admitted(patient, job)) as waiting, asyncio.timeout(60):
        short = "In queue team: couldn't assign flavors to pod set main: insufficient unused quota."
        assert await anext(waiting) == short
        await bench.server.stop()
        assert (await anext(waiting)).startswith("In queue team; what Kueue says cannot be read: ")
        await bench.server.start()
        assert await anext(waiting) == short


@pytest.mark.parametrize("is_taken_up", [True, False])
async def test_a_job_that_is_deleted_is_not_waited_for(client, monkeypatch, is_taken_up):
    monkeypatch.setattr(queues, "_POSITION_SECONDS", 0.2)
    job = await job_in_queue(client)
    if is_taken_up:
        await workload(client, job, SHORT)
    async with contextlib.aclosing(queues.until_admitted(client, job)) as waiting, asyncio.timeout(60):
        assert (await anext(waiting)).startswith("In queue team: ")
        await objects.delete(client, JOBS, "j", namespace="default")
        if is_taken_up:
            await objects.delete(client, queues.WORKLOADS, "job-j", namespace="default")
        # There is another one of that name, which others wait for.
        await job_in_queue(client)
        with pytest.raises(ServiceError, match="Job j was deleted while it waited in queue team"):
            async for _ in waiting:
                pass


async def test_a_cluster_without_kueue_is_named_before_anything_is_made(client):
    for plural in ("workloads", "localqueues", "clusterqueues", "resourceflavors", "workloadpriorityclasses"):
        await objects.delete(client, CRDS, f"{plural}.{queues.GROUP}")
    with pytest.raises(ServiceError, match="has no Kueue, so there is no queue team"):
        await queues.check(client, "default", "team")
    assert [each.level for each in await checks.queue(client, "default", "team")] == [Tone.FAIL]


@pytest.mark.parametrize(
    ("frameworks", "said"),
    [
        ("integrations: {frameworks: [batch/job]}", "Kueue does not handle JobSets"),
        ("integrations: {frameworks: [jobset.x-k8s.io/jobset]}", "it handles JobSets"),
        ("frameworks: [", "is not known"),
        (None, "is not known"),
    ],
)
async def test_whether_kueue_handles_jobsets_is_read_from_its_configuration(client, frameworks, said):
    await local_queue(client)
    if frameworks is not None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        await objects.create(client, objects.NAMESPACES, space)
        about = {"name": "kueue-manager-config", "namespace": "kueue-system"}
        data = {"controller_manager_config.yaml": frameworks}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}
        await objects.create(client, CONFIG_MAPS, body)
    _, handled = await checks.queue(client, "default", "team")
    assert said in handled.message


async def local_queue(client, active=None, spec=None, kind=queues.QUEUES, name="team"):
    """A queue, and what Kueue says of it."""
    about = {"name": name, **({"namespace": "default"} if kind.namespaced else {})}
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": about,
        "spec": spec or {"clusterQueue": "all"},
    }
    await objects.create(client, kind, body)
    if active is not None:
        change = {"status": {"conditions": [active]}}
        path = kind.item(about.get("namespace", ""), name, "status")
        await client.request("PATCH", path, body=change, content_type="application/merge-patch+json")


ACTIVE, INACTIVE = (
    condition("Active", "True"),
    condition("Active", "False", "Can't submit new workloads: it is stopped."),
)


@pytest.mark.parametrize(
    ("local", "cluster", "said"),
    [
        (None, ACTIVE, "Queue team has not been seen by Kueue, which does not seem to run."),
        (INACTIVE, ACTIVE, "Queue team is not active: Can't submit new workloads: it is stopped."),
        (condition("Active", "Unknown", "being deleted"), ACTIVE, "Queue team is not active: being deleted."),
        (ACTIVE, None, "Queue team admits nothing: its ClusterQueue all is not there."),
        (ACTIVE, INACTIVE, "its ClusterQueue all is not active: Can't submit new workloads: it is stopped."),
    ],
)
async def test_a_queue_that_admits_nothing_is_a_problem(client, local, cluster, said):
    await local_queue(client, local)
    if cluster is not None:
        groups = {"resourceGroups": [], "namespaceSelector": {}}
        await local_queue(client, cluster, groups, queues.CLUSTER_QUEUES, "all")
    found, _ = await checks.queue(client, "default", "team")
    assert (found.level, found.message.endswith(said)) == (Tone.FAIL, True), found
    assert found.hint


async def test_whether_kueue_runs_is_read_from_its_lease(client, monkeypatch):
    await local_queue(client, ACTIVE)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
    await objects.create(client, objects.NAMESPACES, space)
    spec = {"leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z", "holderIdentity": "kueue-0"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
    await objects.create(
        client, objects.LEASES, {**lease, "metadata": {"name": "c1f6bfd2.kueue.x-k8s.io"}}, namespace="kueue-system"
    )
    _, found = await checks.queue(client, "default", "team")
    assert (found.level, found.message.startswith("Kueue runs; ")) == (Tone.OK, True)
    # The client's clock is the only fake part.
    now = Client.now
    monkeypatch.setattr(Client, "now", lambda self: now(self) + 7200)
    _, found = await checks.queue(client, "default", "team")
    assert found.level is Tone.FAIL, found
    assert found.message == "Kueue does not run: Lease kueue-system/c1f6bfd2.kueue.x-k8s.io is not renewed."


def test_a_queue_is_a_label_of_the_job_of_its_jobset_and_of_a_proxy_but_not_of_its_pod():
    marks = {names.QUEUE_LABEL: "team", names.PRIORITY_LABEL: "high"}
    job = submission.new("train", {"tpuv6e:2x2": 1}, queue="team", priority="high")
    assert job["metadata"]["labels"] == marks
    jobset = expansion.expand(job)
    assert marks.items() <= jobset["metadata"]["labels"].items()
    assert jobset["spec"]["suspend"] is True
    slices = {"tpuv6e:2x2": 1}
    spec = proxy_job.ProxySpec("s", "x", "x:1", "r/proxy_server:1", slices, queue="team", priority="high")
    proxy = proxy_job.job(spec)
    assert marks.items() <= proxy["metadata"]["labels"].items()
    assert proxy["spec"]["suspend"] is True
    # Kueue would take a pod with the label for a job of its own.
    assert not marks.keys() & proxy["spec"]["template"]["metadata"]["labels"].keys()
