"""The fault drill, through a real server on the embedded cluster."""

import asyncio
import contextlib
import re
from pathlib import Path

import psutil
import pytest
from pages import opened
from waits import wait_until

from pathways_jupyter.elastic import cordons
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBSETS
from pathways_jupyter.server import drill
from pathways_jupyter.service import names
from tests.server.conftest import connecting

SERVICE = "pathways-cluster"
SIDEBAR = Path(__file__).parents[2] / "labextension" / "src" / "models"


@pytest.fixture
def break_or_heal(server, set_up, cluster):
    """Sends a request about a slice to the server, whose user has the cluster's kubeconfig."""
    set_up(cluster.read_text(encoding="utf-8"))

    async def send(action, number):
        given = {"service": SERVICE, "slice": number}
        async with server.http() as http, http.post(server.route(f"slices/{action}"), json=given) as answer:
            return answer.status, await answer.json()

    yield send
    # What ends a fault asks the cluster a moment after it was healed, and again and again if that has ended by then.
    wait_until(lambda: not fault_ends(server.environ["HOME"]))


def fault_ends(home):
    """The processes of a server's user that end a fault in its time."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            if cordons.__name__ in (process.info["cmdline"] or ()) and process.environ().get("HOME") == home:
                found.append(process)
    return found


def ready(page, *numbers):
    return page.live and all(page.slices.get(number, {}).get("health") == "ready" for number in numbers)


async def test_a_free_slice_is_broken_and_healed(server, break_or_heal):
    async with opened(server) as page:
        await page.look()
        await page.until(lambda page: ready(page, 0, 1))
        status, said = await break_or_heal("break", 1)
        assert (status, said["message"].startswith("Slice 1 was taken down and stays down for 60 s")) == (200, True)
        await page.until(lambda page: not ready(page, 1))
        assert ready(page, 0)
        # Its place is kept empty, so there is nothing to break again.
        assert (await break_or_heal("break", 1))[1]["hint"]
        assert (await break_or_heal("heal", 1))[0] == 200
        await page.until(lambda page: ready(page, 0, 1))


async def test_the_session_that_holds_a_broken_slice_knows_why(server, break_or_heal, nothing, cluster, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", nothing["JUPYTER_RUNTIME_DIR"])
    with connecting(cluster) as connect:
        async with opened(server) as page:
            await page.look()
            await page.until(lambda page: ready(page, 0, 1))
            _, record = await asyncio.to_thread(connect)
            number = record["slices"][0]["number"]
            assert (await break_or_heal("break", number))[0] == 200
            await page.until(
                lambda page: any("On purpose" in each["message"] for each in page.events.get(record["id"], ()))
            )
            await page.until(lambda page: not ready(page, number))
            assert (await break_or_heal("heal", number))[0] == 200
            await page.until(lambda page: ready(page, 0, 1))


def test_the_page_says_for_how_long_a_slice_is_broken():
    (said,) = re.findall(r"BREAK_SECONDS = (\d+);", (SIDEBAR / "drill.ts").read_text(encoding="utf-8"))
    assert int(said) == drill.BREAK_SECONDS


async def test_slices_of_a_real_cluster_are_not_broken(server, break_or_heal, cluster):
    async with _without_label(cluster), opened(server) as page:
        await page.look()
        await page.until(lambda page: ready(page, 0, 1))
        status, said = await break_or_heal("break", 0)
        assert (status, "only slices of the embedded cluster" in said["message"]) == (400, True)
        assert ready(page, 0, 1)


@contextlib.asynccontextmanager
async def _without_label(cluster):
    """Make the service look like one of a real cluster."""
    async with Client(auth.load(str(cluster))) as client:

        async def label(value):
            change = {"metadata": {"labels": {names.EMBEDDED_LABEL: value}}}
            await objects.patch(client, JOBSETS, SERVICE, change, namespace="default")

        before = await objects.get(client, JOBSETS, SERVICE, namespace="default")
        await label(None)
        try:
            yield
        finally:
            await label(before["metadata"]["labels"][names.EMBEDDED_LABEL])
