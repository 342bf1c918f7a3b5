"""Following a job, on an API server whose controllers the test stands for."""

import asyncio
import contextlib

from pathways_jobs import headless

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import JOBSETS
from pathways_jupyter.service import jobs
from pathways_jupyter.service.pathwaysjob import conditions, expansion

DEADLINE = 60.0


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
        contextlib.aclosing(jobs.pictures(client, "t", namespace="default", events=False)) as pictures,
        asyncio.timeout(DEADLINE),
    ):
        found = await anext(pictures)
        assert (found.job.state, found.outdated) == (conditions.PENDING, "")
        second = asyncio.ensure_future(anext(pictures))
        await following.wait()
        await second
        await bench.server.stop()
        while not found.outdated:
            found = await anext(pictures)
        assert found.job.state == conditions.PENDING
        started = {"type": "StartupPolicyCompleted", "status": "True", "reason": "x", "message": "started",
                   "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        bench.store.update(bench.of(JOBSETS), {**made, "status": {"conditions": [started]}}, subresource="status")
        await bench.server.start()
        while found.job.state != conditions.RUNNING:
            found = await anext(pictures)
        assert not found.outdated
