"""Following a job, on an API server whose controllers the test stands for."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from pathways_jobs import headless

from benchmarks.link import Link
from pathways_jupyter.base.errors import ServiceError
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import EVENTS, JOBSETS, PATHWAYS_JOBS, Resource
from pathways_jupyter.service import jobs, status
from pathways_jupyter.service.pathwaysjob import conditions, definition, expansion

DEADLINE = 60.0
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)


async def test_a_job_is_followed_through_an_outage_and_shown_as_outdated_meanwhile(bench):
    """The outage is longer than the client's patience; after it, the job is in another state."""
    watched, following = set(), asyncio.Event()

    def audit(user, question):
        if question.verb == "watch":
            watched.add(question.resource)
            if watched >= {"jobsets", "pods", "events"}:
                following.set()

    bench.server.audit = audit
    client = bench.client(patience=0.2)
    made = await objects.create(client, JOBSETS, expansion.expand(headless("t")))
    async with (
        contextlib.aclosing(jobs.follow(client, "t", namespace="default", events=False)) as changes,
        asyncio.timeout(DEADLINE),
    ):
        found = await anext(changes)
        assert (found.job.state, found.outdated) == (conditions.PENDING, "")
        second = asyncio.ensure_future(anext(changes))
        await following.wait()
        await second
        await bench.server.stop()
        while not found.outdated:
            found = await anext(changes)
        assert found.job.state == conditions.PENDING
        started = {"type": "StartupPolicyCompleted", "status": "True", "reason": "x", "message": "started",
                   "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        bench.store.update(bench.of(JOBSETS), {**made, "status": {"conditions": [started]}}, subresource="status")
        await bench.server.start()
        while found.job.state != conditions.RUNNING:
            found = await anext(changes)
        assert not found.outdated


async def test_slices_of_no_job_are_not_those_of_a_job_without_any(bench):
    client = bench.client()
    with pytest.raises(ServiceError, match="There is no job lab in namespace default"):
        await status.fetch_job(client, "default", "lab")
    await objects.create(client, CRDS, definition.definition())
    await objects.create(client, PATHWAYS_JOBS, headless("lab"))
    with pytest.raises(ServiceError, match="Job lab has no slices now") as queued:
        await status.fetch_job(client, "default", "lab")
    assert "job show lab says why" in queued.value.hint


@pytest.mark.thorough
async def test_a_job_among_many_events_does_not_wait_for_them_page_by_page(bench, tmp_path):
    for number in range(2 * objects.PAGE + 1):
        about = {"kind": "Pod", "name": f"other-{number}", "namespace": "default", "uid": f"u{number}"}
        bench.store.create(
            bench.of(EVENTS),
            {"metadata": {"name": f"e{number}", "namespace": "default"}, "involvedObject": about, "reason": "Started"},
        )
    await objects.create(bench.client(), JOBSETS, expansion.expand(headless("t")))
    fewest = 99
    with Link(Path(bench.kubeconfig()), delay=0.25) as link:
        async with Client(auth.load(str(link.write(tmp_path / "far")))) as client:
            # Connections for all that goes out at once.
            await jobs.details(client, "t", namespace="default")
            for _ in range(3):
                traffic = link.count()
                found = await jobs.details(client, "t", namespace="default")
                fewest = min(fewest, traffic.stages)
                if fewest <= 3:
                    break
    assert found.job.state == conditions.PENDING
    # The three pages of events, one after the other; beside them the job, then its pods and Jobs.
    assert (fewest, traffic.requests) == (3, 7)
