"""Load of pages on the API server: one watch of each resource in all, and none without listeners."""

import asyncio
import contextlib
import json
import os
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from benchmarks.counting import counting
from benchmarks.link import Link
from pathways_jupyter.kube import auth, objects, watch
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


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def swallowed(link):
    link.freeze()
    try:
        yield
    finally:
        link.thaw()


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["its process is stopped", "the network swallows packets"])
async def test_a_quiet_cluster_that_no_longer_answers_is_not_shown_as_watched(
    server, cluster, machine, set_up, tmp_path, how
):
    with Link(cluster) as link:
        set_up(link.write(tmp_path / "kubeconfig").read_text(encoding="utf-8"))
        status = await asyncio.to_thread(machine.cli, "local", "status", "--json")
        silent = stopped(json.loads(status.stdout)["pid"]) if how.startswith("its process") else swallowed(link)
        async with server.http() as http, http.ws_connect(server.route("updates"), max_msg_size=0) as socket:

            async def until(word):
                async with asyncio.timeout(DEADLINE):
                    while (message := await socket.receive_json()).get("watch") != word:
                        pass
                return message

            await socket.send_json({"type": "look", "scope": {}})
            await until("live")
            with silent:
                lost = await until("lost")
                # The tables are as old as the last answer, not as the notice.
                assert lost["as_of"] < time.time() - watch.ANSWER_SECONDS
            assert "stopped answering" in lost["problem"]["message"]
            assert (await until("live"))["as_of"] > lost["as_of"]


def test_a_cluster_that_no_longer_answers_is_noticed_within_ten_seconds():
    assert watch.QUIET_SECONDS + watch.ANSWER_SECONDS < 10
