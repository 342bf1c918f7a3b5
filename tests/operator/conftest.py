import argparse
import asyncio
import contextlib

import pytest
from program_log import Log
from quiet_cluster import DEADLINE, QuietCluster

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.kube.objects import JOBSETS, PATHWAYS_JOBS, Resource
from pathways_jupyter.operator.job_controller import PathwaysJobController, Reconciles
from pathways_jupyter.service.pathwaysjob import definition

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)


class Bench(QuietCluster):
    """A cluster whose JobSets do only what a test says, with proxies of sessions and PathwaysJobs."""

    async def install(self, client: Client) -> None:
        """Make PathwaysJob an API of the cluster."""
        await objects.create(client, CRDS, definition.definition())

    @contextlib.asynccontextmanager
    async def controlled(self, client: Client):
        """Control jobs meanwhile; yields the lines of the controller's log."""
        lines = Log()
        running = asyncio.create_task(
            PathwaysJobController(Informer(client), say=lines.write, reconciles=Reconciles()).run()
        )
        try:
            yield lines
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def report(self, client: Client, name: str, *conditions: tuple[str, str], **status) -> None:
        """Give a JobSet a status, as its controller would: conditions with their values."""
        found = [
            {"type": kind, "status": value, "reason": kind, "message": f"{kind} of {name}",
             "lastTransitionTime": "2026-01-01T00:00:00Z"}
            for kind, value in conditions
        ]  # fmt: skip
        path = JOBSETS.item("default", name, "status")
        body = {"status": {"conditions": found, **status}}
        await client.request("PATCH", path, body=body, content_type="application/merge-patch+json")

    async def job_in(self, client: Client, name: str, state: str) -> dict:
        """Wait until a job is in a state; return it."""

        def reached(job):
            conditions = ((job or {}).get("status") or {}).get("conditions", ())
            return {each["type"] for each in conditions if each["status"] == "True"} == {state}

        return await self.until(client, name, reached, PATHWAYS_JOBS)


@pytest.fixture
def bench_type():
    return Bench


@pytest.fixture
def meanwhile():
    """Run an operator, or a part of one, until the end of a block; it ends in order then."""

    @contextlib.asynccontextmanager
    async def run(part):
        stop = asyncio.Event()
        running = asyncio.create_task(part.run(stop))
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait_for(running, DEADLINE)

    return run


@pytest.fixture
def options():
    """The program's options; a busy machine may keep a leader from renewing a Lease of a few seconds."""
    return argparse.Namespace(namespace="", own_namespace="", interval=1e6, lease_seconds=15.0)
