"""Jobs as the sidebar shows and changes them, through a real server."""

import asyncio

import pytest
from pathways_jobs import headless, training

from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.service import jobs, names
from pathways_jupyter.service.pathwaysjob import submission

DEADLINE = 90


async def apply(cluster, manifest):
    async with Client(auth.load(str(cluster))) as client:
        await submission.apply(client, manifest, namespace="default")


async def until(cluster, name, state):
    """Wait until a job is in that state."""
    async with asyncio.timeout(DEADLINE), Client(auth.load(str(cluster))) as client:
        async for info in jobs.until_over(client, name, namespace="default"):
            if info.state == state:
                return


async def until_pods_are_gone(cluster, name):
    async with asyncio.timeout(DEADLINE), Client(auth.load(str(cluster))) as client:
        labels, left = f"{names.JOBSET_NAME_LABEL}={name}", set()
        async for change in watch(client, PODS, namespace="default", labels=labels):
            if change.type is ChangeType.ADDED:
                left.add(change.object["metadata"]["name"])
            elif change.type is ChangeType.DELETED:
                left.discard(change.object["metadata"]["name"])
            if not left and not (await objects.list_(client, PODS, namespace="default", labels=labels)).items:
                return


@pytest.fixture
def ask(server, set_up, cluster):
    """Sends a request to the server, whose user has the cluster's kubeconfig."""
    set_up(cluster.read_text(encoding="utf-8"))

    async def send(method, path):
        async with server.http() as http, http.request(method, server.route(path), json=None) as answer:
            return answer.status, await (answer.text() if "logs" in path else answer.json())

    return send


async def test_a_job_is_shown_read_and_deleted(ask, cluster):
    await apply(cluster, training("routed", "python", "-c", "print('said by the job')"))
    await until(cluster, "routed", "Completed")
    status, shown = await ask("GET", "jobs/routed")
    assert (status, shown["job"]["name"], shown["job"]["state"]) == (200, "routed", "Completed")
    assert {each["role"] for each in shown["pods"]} >= {"head"}
    assert [each["type"] for each in shown["conditions"] if each["status"] == "True"][-1] == "Completed"
    assert "said by the job" in (await ask("GET", "jobs/routed/logs"))[1]
    assert "said by the job" in (await ask("GET", "jobs/routed/logs?follow=true"))[1]
    status, over = await ask("POST", "jobs/routed/suspend")
    assert (status, over["message"]) == (409, "Job routed is over (Completed).")
    assert await ask("POST", "jobs/routed/delete") == (200, {"deleted": True})
    assert await ask("POST", "jobs/routed/delete") == (200, {"deleted": False})
    status, gone = await ask("GET", "jobs/routed")
    assert (status, gone["message"]) == (409, "There is no job routed in namespace default.")
    assert gone["hint"]


async def test_a_job_is_suspended_and_resumed(ask, cluster):
    await apply(cluster, headless("paused"))
    await until(cluster, "paused", "Running")
    assert await ask("POST", "jobs/paused/suspend") == (200, {"suspended": True})
    await until(cluster, "paused", "Suspended")
    assert await ask("POST", "jobs/paused/resume") == (200, {"suspended": False})
    await until(cluster, "paused", "Running")
    status, _ = await ask("GET", "jobs/paused/logs")
    assert status == 409
    assert await ask("POST", "jobs/paused/delete") == (200, {"deleted": True})
    await until_pods_are_gone(cluster, "paused")
