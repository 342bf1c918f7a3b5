"""Two users of a real JupyterHub on one cluster, with the sidebar and notebooks; ``make hub`` runs this.

The hub is set up by what docs/jupyterhub.md says, word for word: its commands, its values and its configuration.
"""

import asyncio
import json
import re
from contextlib import AsyncExitStack

import aiohttp
import pytest

from pathways_jupyter.kube import auth, watch
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES, NETWORK_POLICIES, PODS
from pathways_jupyter.service import names

pytestmark = [pytest.mark.hub, pytest.mark.timeout(600)]

DEADLINE = 120
READING = ("version", "contexts", "services", "jobs/x", "logs?pod=x")
COMPUTE = "import jax; print('sum', int(jax.numpy.arange(8).sum()), jax.devices()[0].platform)"
DATA_PATH = "from pathways_jupyter.session import registry; print(registry.sessions()[0].data_path)"


@pytest.fixture
async def users(hub):
    """The browsers of two users, whose servers run."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(hub.browser(name)) for name in ("alice", "bob")]


@pytest.fixture
async def admin(cluster):
    async with Client(auth.load(str(cluster))) as client:
        yield client


async def status_of(browser, url, **headers):
    async with browser.http.get(url, headers=headers, allow_redirects=False) as answer:
        return answer.status


async def test_each_user_has_the_sidebar_at_an_address_of_the_users_own(users):
    for browser in users:
        # The page loads the sidebar, and reads its data, from below the user's own address.
        entries = json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', browser.lab, re.DOTALL)[1])
        (sidebar,) = [each for each in entries["federated_extensions"] if each["name"] == "pathways-jupyter"]
        await browser.get(f"{browser.base}/lab/extensions/pathways-jupyter/{sidebar['load']}")
        await browser.get(browser.route("version"), headers=browser.headers())
        assert "pathways-cluster" in await browser.get(browser.route("services"), headers=browser.headers())
        async with browser.page() as page:
            await page.look()
            await page.until(lambda page: page.live and len(page.slices) == 2)
            (hello,) = [each for each in page.messages if each["type"] == "hello"]
            assert hello["user"] == browser.name


async def test_no_user_reaches_the_routes_of_another(users):
    for browser, other in zip(users, reversed(users), strict=True):
        for path in READING:
            assert await status_of(browser, browser.route(path, other.name), **browser.headers()) in {302, 403}
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await browser.http.ws_connect(browser.route("updates", other.name))
        assert refused.value.status in {302, 403}
        # A page of the other's, which has the same origin here, can make this browser send what needs no script.
        for mode in (
            {},
            {"Sec-Fetch-Mode": "navigate"},
            {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Site": "same-origin"},
            {"X-XSRFToken": "guessed"},
        ):
            for path in READING:
                assert await status_of(browser, browser.route(path), **mode) == 403


async def test_notebooks_of_two_users_share_a_cluster_and_leave_nothing_when_the_hub_stops_them(hub, users, admin):
    alice, bob = users
    async with asyncio.timeout(DEADLINE * 2), alice.kernel() as one, bob.kernel() as two, alice.page() as page:
        await page.look()
        for kernel in (one, two):
            said = await kernel.run("%load_ext pathways_jupyter\n%pathways connect --tpu tpuv6e:2x2=1 --wait 60")
            assert "connected" in said
            assert "sum 28 tpu" in await kernel.run(COMPUTE)
            assert hub.data_path in await kernel.run(DATA_PATH)
        assert "bob" in await one.run("%pathways slices")
        assert "alice" in await two.run("%pathways slices")
        await page.until(lambda page: sorted(holders(page)) == ["alice", "bob"])
        assert [session["user"] for session in page.sessions] == ["alice"]
        assert "connect" in await two.run("%pathways disconnect")
        # The page's last section.
        assert "All is well" in await one.run("!pathways-jupyter doctor")
        await page.until(lambda page: holders(page) == ["alice"])
        again = await two.run("%pathways connect --tpu tpuv6e:2x2=1 --wait 60")
        assert "connected" in again
    # As the hub's culler does, with a session in each server.
    for browser in users:
        url = f"{browser.hub.url}hub/api/users/{browser.name}/server"
        async with browser.http.delete(url, headers=browser.headers("/team/hub/")) as answer:
            assert answer.status in {202, 204}, await answer.text()
    async with asyncio.timeout(DEADLINE):
        for kind in (JOBS, PODS, LEASES, NETWORK_POLICIES):
            await watch.until_gone(admin, kind, namespace="default", labels=names.SESSION_LABEL)
        await watch.until_gone(admin, PODS, namespace="jupyterhub", labels="component=singleuser-server")


def holders(page):
    """The users who hold a slice, as the sidebar sees them."""
    return [row["holder"]["user"] for row in page.slices.values() if row["holder"]]
