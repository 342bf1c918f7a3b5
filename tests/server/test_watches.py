"""Load of pages on the API server: one watch of each resource in all, and none without listeners."""

import asyncio
import contextlib
import json
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pages import opened
from waits import frozen

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


def all_ready(page):
    rows = page.slices.values()
    return rows and all(row["health"] == "ready" and row["hosts"][0]["pod"] for row in rows)


async def test_three_pages_cost_one_watch_of_each_resource_and_none_once_they_are_gone(
    server, cluster, counted, set_up
):
    set_up(await asyncio.to_thread(Path(counted.kubeconfig).read_text, encoding="utf-8"))
    async with AsyncExitStack() as stack:
        pages = [await stack.enter_async_context(opened(server)) for _ in range(3)]
        for page in pages:
            await page.look()
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
            await page.until(lambda page: all_ready(page) and page.slices[1]["hosts"][0]["pod"] != pod)
        assert counted.watches == ONE_EACH

        # A page that looks away, or is closed, ends nothing for the others; the last one ends all.
        await pages[0].socket.send_json({"type": "look", "scope": None})
        await pages[1].socket.close()
        assert counted.watches == ONE_EACH
    async with asyncio.timeout(DEADLINE):
        await counted.until(lambda watches: not watches)
    async with opened(server) as late:
        await late.look()
        await late.until(all_ready)


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
        silent = frozen(json.loads(status.stdout)["pid"]) if how.startswith("its process") else swallowed(link)
        async with opened(server) as page:
            await page.look()
            await page.until(lambda page: page.live)
            with silent:
                await page.until(lambda page: page.watch["watch"] == "lost")
                lost = page.watch
                # The tables are as old as the last answer, not as the notice.
                assert lost["as_of"] < time.time() - watch.ANSWER_SECONDS
            assert "stopped answering" in lost["problem"]["message"]
            await page.until(lambda page: page.live)
            assert page.watch["as_of"] > lost["as_of"]


def test_a_cluster_that_no_longer_answers_is_noticed_within_ten_seconds():
    assert watch.QUIET_SECONDS + watch.ANSWER_SECONDS < 10
