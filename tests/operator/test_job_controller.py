import asyncio

import pytest
from pathways_jobs import headless, training

from pathways_jupyter.base.errors import ServiceError
from pathways_jupyter.kube import auth, informer, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.kube.objects import JOBSETS, PATHWAYS_JOBS, Resource
from pathways_jupyter.local.apiserver import app
from pathways_jupyter.local.apiserver.jobset_webhook import default_jobset
from pathways_jupyter.operator import job_controller
from pathways_jupyter.operator.job_controller import EVENTS, PathwaysJobController, Reconciles
from pathways_jupyter.service import jobs
from pathways_jupyter.service.pathwaysjob import expansion


async def events(client):
    listed = await objects.list_(client, EVENTS, namespace="default")
    return [(each["involvedObject"]["kind"], each["reason"]) for each in listed.items]


async def test_a_job_becomes_a_jobset_and_follows_its_states(bench):
    async with bench.client() as client:
        await bench.install(client)
        async with bench.controlled(client):
            job = await objects.create(client, PATHWAYS_JOBS, training("t", maxRestarts=2))
            jobset = await bench.until(client, "t", bool, JOBSETS)
            expected = expansion.expand(job)
            default_jobset(expected)
            expected_jobs = [{"groupName": "default", **each} for each in expected["spec"]["replicatedJobs"]]
            assert jobset["spec"]["replicatedJobs"] == expected_jobs
            (owner,) = jobset["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["uid"]) == ("PathwaysJob", job["metadata"]["uid"])
            assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, True)

            await bench.job_in(client, "t", "Pending")
            started = ("StartupPolicyCompleted", "True")
            await bench.report(client, "t", started)
            await bench.job_in(client, "t", "Running")
            await bench.report(client, "t", started, ("Suspended", "True"))
            await bench.job_in(client, "t", "Suspended")
            await bench.report(client, "t", started, ("Suspended", "False"), restarts=1)
            running = await bench.job_in(client, "t", "Running")
            assert running["status"]["restarts"] == 1
            assert "terminalState" not in running["status"]
            await bench.report(client, "t", started, ("Completed", "True"), restarts=1)
            over = await bench.job_in(client, "t", "Completed")
            assert over["status"]["terminalState"] == "Completed"
            assert over["status"]["conditions"][-1]["message"] == "Completed of t"
        reasons = [reason for kind, reason in await events(client) if kind == "PathwaysJob"]
        assert sorted(reasons) == ["Completed", "CreatedJobSet", "Pending", "Running", "Running", "Suspended"]


async def test_a_failed_job_stays_failed_when_its_jobset_is_gone(bench):
    async with bench.client() as client:
        await bench.install(client)
        async with bench.controlled(client):
            await objects.create(client, PATHWAYS_JOBS, training("t"))
            await bench.until(client, "t", bool, JOBSETS)
            await bench.report(client, "t", ("Failed", "True"))
            failed = await bench.job_in(client, "t", "Failed")
            assert failed["status"]["terminalState"] == "Failed"
            await objects.delete(client, JOBSETS, "t", namespace="default")
            # A second job, handled after the change of the first: nothing came of that.
            await objects.create(client, PATHWAYS_JOBS, training("u"))
            await bench.until(client, "u", bool, JOBSETS)
            assert await objects.find(client, JOBSETS, "t", namespace="default") is None


async def test_a_job_is_suspended_by_its_own_jobset_and_not_by_that_of_an_earlier_job_of_its_name(bench, monkeypatch):
    async with bench.client() as client:
        await bench.install(client)
        job = await objects.create(client, PATHWAYS_JOBS, training("t"))
        owner, jobset = objects.owner(job, controller=True), expansion.expand(job)
        jobset["metadata"]["ownerReferences"] = [{**owner, "uid": "of-an-earlier-job"}]
        await objects.create(client, JOBSETS, jobset, namespace="default")
        monkeypatch.setattr(jobs, "_CREATION_SECONDS", 0.5)
        with pytest.raises(ServiceError, match="Job t has no JobSet"):
            await jobs.suspend(client, "t", namespace="default")
        assert not (await objects.find(client, JOBSETS, "t", namespace="default"))["spec"].get("suspend")
        await objects.delete(client, JOBSETS, "t", namespace="default")
        jobset["metadata"]["ownerReferences"] = [owner]
        await objects.create(client, JOBSETS, jobset, namespace="default")
        assert (await jobs.suspend(client, "t", namespace="default")).name == "t"
        assert (await objects.find(client, JOBSETS, "t", namespace="default"))["spec"]["suspend"]


async def test_a_jobset_of_another_owner_is_left_alone_and_once_it_is_deleted_the_job_gets_its_own(bench, monkeypatch):
    """At once: the next attempt without a change is far away."""
    monkeypatch.setattr(job_controller, "_FIRST_PAUSE_SECONDS", 1e6)
    async with bench.client() as client:
        await bench.install(client)
        theirs = expansion.expand(headless("t"))
        await objects.create(client, JOBSETS, theirs, namespace="default")
        async with bench.controlled(client) as lines:
            await objects.create(client, PATHWAYS_JOBS, training("t"))
            watch = bench.store.watch(bench.of(EVENTS))
            async with asyncio.timeout(30):
                while ("PathwaysJob", "JobSetExists") not in await events(client):
                    await watch.batch()
            watch.close()
            assert not (await objects.get(client, PATHWAYS_JOBS, "t", namespace="default")).get("status")
            await objects.delete(client, JOBSETS, "t", namespace="default")
            await bench.job_in(client, "t", "Pending")
        assert any("does not belong to this job" in line for line in lines)


async def test_a_job_older_than_the_rules_fails_with_the_reason(bench):
    async with bench.client() as client:
        await bench.install(client)
        bad = headless("t")
        bad["spec"]["workers"][0]["topology"] = "3x3"
        # Written past the API server, as if the definition had come later.
        resource = bench.of(PATHWAYS_JOBS)
        rules = resource.schema["properties"]["spec"]["properties"]["workers"]["items"].pop("x-kubernetes-validations")
        try:
            await objects.create(client, PATHWAYS_JOBS, bad)
        finally:
            resource.schema["properties"]["spec"]["properties"]["workers"]["items"]["x-kubernetes-validations"] = rules
        async with bench.controlled(client):
            failed = await bench.job_in(client, "t", "Failed")
        assert "has no topology '3x3'" in failed["status"]["conditions"][-1]["message"]


async def test_the_controller_waits_for_the_api_to_be_installed(bench, monkeypatch):
    monkeypatch.setattr(informer, "FIRST_PAUSE_SECONDS", 0.2)
    async with bench.client() as client, bench.controlled(client) as lines:
        await lines.until("there is no PathwaysJob API")
        await bench.install(client)
        await objects.create(client, PATHWAYS_JOBS, training("t"))
        await bench.until(client, "t", bool, JOBSETS)


async def test_an_api_server_that_has_just_restarted_is_no_missing_permission(bench, monkeypatch):
    """It knows no roles for a second, and says so in its refusals; the next look for a missing API is far away."""
    real = app.refusal

    def refuse(user, route, verb):
        refusals.set()
        error = real(user, route, verb)
        error.args = (f'{error}: RBAC: clusterrole.rbac.authorization.k8s.io "operator" not found',)
        return error

    refusals = asyncio.Event()
    monkeypatch.setattr(app, "refusal", refuse)
    rbac = ("rbac.authorization.k8s.io", "v1")
    role = {"metadata": {"name": "operator"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    binding = {
        "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": rbac[0], "kind": "ClusterRole", "name": "operator"},
        "subjects": [{"apiGroup": rbac[0], "kind": "User", "name": "operator"}],
    }
    async with bench.client() as client, bench.client(name="operator", rules=[]) as limited:
        await bench.install(client)
        bindings = Resource(*rbac, "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
        await objects.create(client, bindings, binding)
        await objects.create(client, PATHWAYS_JOBS, training("t"))
        monkeypatch.setattr(informer, "FIRST_PAUSE_SECONDS", 1e6)
        async with bench.controlled(limited) as lines:
            await asyncio.wait_for(refusals.wait(), 30)
            await objects.create(client, Resource(*rbac, "clusterroles", "ClusterRole", namespaced=False), role)
            await bench.until(client, "t", bool, JOBSETS)
        assert not [line for line in lines if "not allowed" in line]


class Mortal(Client):
    """A client whose process dies at one of its writes: before it is sent, or before its answer arrives."""

    def __init__(self, cluster, last: int, *, sent: bool) -> None:
        super().__init__(cluster)
        self.left, self.sent = last, sent
        self.died = asyncio.Event()

    def now(self):
        # Its successor comes later, so that what they write must not depend on the time.
        return super().now() - 60

    async def request(self, method, path, **options):
        if method == "GET":
            return await super().request(method, path, **options)
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.sent):
            self.died.set()
            await asyncio.Event().wait()
        answer = await super().request(method, path, **options)
        if self.left == 0:
            self.died.set()
            await asyncio.Event().wait()
        return answer


@pytest.mark.parametrize("sent", [False, True], ids=["before it is sent", "before its answer"])
async def test_a_controller_killed_at_any_write_is_continued_by_the_next(bench, sent):
    """One life for each write of a job's whole life; the cluster moves on only when a controller has nothing to do."""
    deaths = 0
    async with bench.client() as client:
        await bench.install(client)
        uids = set()
        for last in range(1, 30):
            name = f"t{last}"
            await objects.create(client, PATHWAYS_JOBS, training(name))
            async with Mortal(auth.load(bench.kubeconfig()), last, sent=sent) as mortal:
                killed = asyncio.create_task(mortal.died.wait())
                first = asyncio.create_task(
                    PathwaysJobController(Informer(mortal), say=lambda _: None, reconciles=Reconciles()).run()
                )
                life = asyncio.create_task(live(bench, client, name))
                async with asyncio.timeout(60):
                    await asyncio.wait({killed, life}, return_when=asyncio.FIRST_COMPLETED)
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
                dead = killed.done()
                killed.cancel()
            deaths += dead
            async with bench.controlled(client):
                job = await asyncio.wait_for(life, 60)
            assert job["status"]["terminalState"] == "Completed"
            uids.add((await objects.get(client, JOBSETS, name, namespace="default"))["metadata"]["uid"])
            reasons = [
                each["reason"]
                for each in (await objects.list_(client, EVENTS, namespace="default")).items
                if each["involvedObject"]["name"] == name
            ]
            assert len(reasons) == len(set(reasons)), f"an event was written twice: {reasons}"
            if not dead:
                break
        jobsets = (await objects.list_(client, JOBSETS, namespace="default")).items
        assert {each["metadata"]["uid"] for each in jobsets} == uids, "each job had one JobSet, never another"
    assert deaths >= 6, "it dies at each of: JobSet, its event, and event and status of every state"


async def live(bench, client, name):
    """The life of a job's JobSet, as the JobSet's controller leads it."""
    await bench.until(client, name, bool, JOBSETS)
    await bench.job_in(client, name, "Pending")
    await bench.report(client, name, ("StartupPolicyCompleted", "True"))
    await bench.job_in(client, name, "Running")
    await bench.report(client, name, ("StartupPolicyCompleted", "True"), ("Completed", "True"))
    return await bench.job_in(client, name, "Completed")
