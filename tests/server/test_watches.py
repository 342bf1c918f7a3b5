"""What pages cost the API server: one watch of each resource in all, and none without listeners."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from benchmarks.counting import counting
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client

DEADLINE = 60
ONE_EACH = {"pods": 1, "jobs": 1, "jobsets": 1, "pathwaysjobs": 1}


@pytest.fixture
async def counted(cluster, tmp_path):
    async with counting(str(cluster), tmp_path) as made:
        yield made


class Page:
    """A page's WebSocket, and the health of the slices that it receives."""

    def __init__(self, socket):
        self.socket = socket
        self.slices = {}

    async def until(self, true):
        async with asyncio.timeout(DEADLINE):
            while not (self.slices and true(self.slices)):
                message = await self.socket.receive_json()
                if message["type"] == "tables":
                    self.slices |= {row["number"]: row for row in message["put"].get("slices", ())}


def all_ready(slices):
    return all(row["health"] == "ready" and row["hosts"][0]["pod"] for row in slices.values())


async def test_three_pages_cost_one_watch_of_each_resource_and_none_once_they_are_gone(
    server, cluster, counted, set_up
):
    set_up(await asyncio.to_thread(Path(counted.kubeconfig).read_text, encoding="utf-8"))
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(server.http())
        pages = [
            Page(await stack.enter_async_context(http.ws_connect(server.route("updates"), max_msg_size=0)))
            for _ in range(3)
        ]
        for page in pages:
            await page.socket.send_json({"type": "look", "scope": {}})
        for page in pages:
            await page.until(all_ready)
        async with asyncio.timeout(DEADLINE):
            await counted.until(lambda watches: watches.total() >= len(ONE_EACH))
        assert counted.watches == ONE_EACH

        # All of them see the same change, through the same watches.
        pod = pages[0].slices[1]["hosts"][0]["pod"]
        async with Client(auth.load(str(cluster))) as client:
            await objects.delete(client, objects.PODS, pod, namespace="default")
        for page in pages:
            await page.until(lambda slices: all_ready(slices) and slices[1]["hosts"][0]["pod"] != pod)
        assert counted.watches == ONE_EACH

        # A page that looks away, or is closed, ends nothing for the others; the last one ends all.
        await pages[0].socket.send_json({"type": "look", "scope": None})
        await pages[1].socket.close()
        assert counted.watches == ONE_EACH
    async with asyncio.timeout(DEADLINE):
        await counted.until(lambda watches: not watches)
