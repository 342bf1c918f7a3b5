"""PathwaysJobs on the embedded cluster: from apply to the JobSet, and to the first line of the user's Python."""

from __future__ import annotations

import asyncio
import time

from benchmarks.measure import Row, Table, median
from pathways_jupyter.base.errors import ClusterError
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBSETS, PATHWAYS_JOBS
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.service import jobs
from pathways_jupyter.service.pathwaysjob import submission

_RUNS = 7
_PROGRAM = ("python", "-uc", "print('first line')")


def run(kubeconfig: str, context: str) -> list[Table]:
    """Run jobs one after the other; return the medians."""
    found = asyncio.run(_run(kubeconfig, context))
    jobset, line = (1000 * median([each[part] for each in found]) for part in (0, 1))
    return [
        Table(
            "PathwaysJobs on the embedded cluster",
            "ms",
            [Row("apply to JobSet created", {"median": jobset}), Row("apply to first line", {"median": line})],
            goal="JobSet within 100 ms, first line of the user's Python within 2,000 ms",
            verdict=f"JobSet after {jobset:.0f} ms, first line after {line:.0f} ms",
            notes=["A node is made for each job, and removed ten seconds after it."],
        )
    ]


async def _run(kubeconfig: str, context: str) -> list[tuple[float, float]]:
    async with Client(auth.load(kubeconfig, context)) as client:
        return [await _one(client, f"bench-{number}") for number in range(_RUNS)]


async def _one(client: Client, name: str) -> tuple[float, float]:
    manifest = submission.new(name, {"tpuv6e:2x2": 1}, _PROGRAM, image="python:3.12")
    created = asyncio.create_task(_created(client, name))
    await asyncio.sleep(0.1)
    began = time.perf_counter()
    await submission.apply(client, manifest, namespace="default")
    jobset = await created - began
    line = await _first_line(client, name) - began
    await objects.delete(client, PATHWAYS_JOBS, name, namespace="default")
    return jobset, line


async def _created(client: Client, name: str) -> float:
    async for change in watch(client, JOBSETS, namespace="default", name=name):
        if change.type is ChangeType.ADDED:
            return time.perf_counter()
    raise AssertionError("the watch ended")


async def _first_line(client: Client, name: str) -> float:
    while True:
        try:
            async for _ in jobs.log(client, name, namespace="default", follow=True):
                return time.perf_counter()
        except ClusterError:
            pass
        await asyncio.sleep(0.01)
