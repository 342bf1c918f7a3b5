"""XProf behind the Jupyter server: its pages about a trace in the embedded cluster's bucket."""

import json
import re

import fsspec
import jax
import pytest
from yarl import URL

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.profile import bucket
from pathways_jupyter.session import clusters
from tests.server import conftest

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def xprof_server(cluster, machine, tmp_path_factory):
    with conftest.running(tmp_path_factory.mktemp("xprof"), machine.environ) as made:
        yield made


@pytest.fixture
def location(cluster, tmp_path, monkeypatch):
    """Where a trace of this process is in the cluster's bucket."""
    for name, value in clusters.Storage.of(ConnectConfig(local=True, kubeconfig=str(cluster))).variables.items():
        monkeypatch.setenv(name, value)
    with jax.profiler.trace(str(tmp_path)):
        jax.numpy.arange(8.0).sum().block_until_ready()
    (written,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    place = bucket.directory("gs://pathways-local/traces", written.parent.name)
    fsspec.filesystem("gs", skip_instance_cache=True).put_file(str(written), f"{place}/{written.name}")
    return place


async def test_its_pages_are_behind_the_servers_login(xprof_server, location):
    async with xprof_server.http() as http:
        async with http.post(xprof_server.route("xprof"), data=json.dumps({"location": location})) as answer:
            said = await answer.json()
            assert answer.status == 200, said
        pages = URL(f"{xprof_server.url}{conftest.BASE_URL}{said['path']}")
        async with http.get(pages) as answer:
            assert "<title>XProf</title>" in await answer.text()
        async with http.get(pages / "runs") as answer:
            assert json.loads(await answer.text()) == [location.rpartition("/")[2]]
        async with http.get(pages / "bundle.js") as answer:
            assert answer.status == 200
            assert int(answer.headers["Content-Length"]) > 100_000
        # Once more: the same process.
        async with http.post(xprof_server.route("xprof"), data=json.dumps({"location": location})) as answer:
            assert (await answer.json()) == said
    async with xprof_server.http(token="") as http, http.get(pages, allow_redirects=False) as answer:
        assert answer.status == 302
        assert "/login" in answer.headers["Location"]
    async with xprof_server.http() as http, http.get(pages, headers={"Sec-Fetch-Site": "cross-site"}) as answer:
        assert answer.status == 403


async def test_an_address_of_none_that_runs_says_what_to_do(xprof_server):
    path = f"xprof/{'0' * 16}/data/plugin/profile/"
    async with xprof_server.http() as http, http.get(xprof_server.route(path)) as answer:
        assert answer.status == 404
        assert re.search("Open the trace again", await answer.text())


async def test_a_user_whom_the_authorizer_refuses_sees_no_pages(strict_server):
    path = f"xprof/{'0' * 16}/data/plugin/profile/"
    async with strict_server.http() as http, http.get(strict_server.route(path)) as answer:
        assert answer.status == 403
