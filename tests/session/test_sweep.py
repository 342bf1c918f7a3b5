"""Objects that a clean-up removes, and those that it leaves."""

from __future__ import annotations

import asyncio

from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS
from pathways_jupyter.service import names
from pathways_jupyter.session import sweep

DEADLINE = 60.0
SESSION = "0123456789"


async def make_job(client: Client) -> str:
    """Make the proxy Job of the session; return its uid."""
    container = {"name": "main", "image": "python:3", "command": ["true"]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "proxy", "labels": {names.SESSION_LABEL: SESSION}},
        "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    return str((await objects.create(client, JOBS, job, namespace="default"))["metadata"]["uid"])


class Slow(Client):
    """Its request to delete a Job arrives when the session has another proxy already."""

    replaced = ""

    async def delete(self, path, *, body=None):
        if not self.replaced:
            self.replaced = "now"
            await objects.delete(self, JOBS, "proxy", namespace="default")
            self.replaced = await make_job(self)
        return await super().delete(path, body=body)


async def test_a_request_that_arrives_late_does_not_delete_the_next_proxy(bench):
    """A reconnect cancels the removal of the previous proxy, but not a request that is under way."""
    async with asyncio.timeout(DEADLINE), Slow(auth.load(bench.kubeconfig())) as client:
        await make_job(client)
        await sweep.remove(client, "default", SESSION, patience=0)
        (left,) = (await objects.list_(client, JOBS, namespace="default")).items
        assert left["metadata"]["uid"] == client.replaced
        await sweep.remove(client, "default", SESSION, patience=0)
        assert not (await objects.list_(client, JOBS, namespace="default")).items
