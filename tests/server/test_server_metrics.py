"""Metrics at the Jupyter server's own /metrics: sessions and services, for as long as they are known."""

import asyncio

import holders
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pathways_jupyter.server import server_metrics
from pathways_jupyter.server.hub import Hub

from .conftest import BASE_URL, running

DEADLINE = 60


@pytest.fixture
def here(machine, cluster, tmp_path, monkeypatch):
    """A server on the machine that the sessions are on."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", machine.environ["JUPYTER_RUNTIME_DIR"])
    with running(tmp_path, machine.environ) as server:
        yield server


async def until(http, server, true):
    """Scrape as Prometheus does, until the samples are as wanted."""
    async with asyncio.timeout(DEADLINE):
        while True:
            async with http.get(f"{server.url}{BASE_URL}metrics") as answer:
                assert answer.status == 200
                text = await answer.text()
            families = text_string_to_metric_families(text)
            found = [each for family in families for each in family.samples if each.name.startswith("pathways_")]
            if true(found):
                return found
            await asyncio.sleep(0.1)


async def test_a_session_and_its_service_are_shown_while_they_are_there(here, cluster):
    link = holders.hold(cluster)
    try:
        async with here.http() as http:

            def complete(found):
                names = {each.name for each in found}
                # Slices that other tests have lost may still be healing.
                ready = [each.value for each in found if each.labels.get("state") == "ready"]
                return {"pathways_sessions", "pathways_slices_free"} <= names and ready == [2]

            found = await until(http, here, complete)
            mine = [each for each in found if each.labels.get("session") == link.session]
            assert {each.name: each.value for each in mine if "direction" not in each.labels} == {
                "pathways_session_slice_wait_seconds_total": 0,
                "pathways_session_reconnects_total": 0,
            }
            assert {each.labels["direction"] for each in mine if "direction" in each.labels} == {"sent", "received"}
            assert link.close(patience=DEADLINE)
            await until(http, here, lambda found: not any(each.labels.get("session") for each in found))
            # The cluster is not watched any more, so no series is about it.
            await until(http, here, lambda found: not any(each.name.startswith("pathways_slices") for each in found))
    finally:
        link.close(patience=DEADLINE)


async def test_a_server_without_sessions_shows_none(server):
    async with server.http() as http:
        found = await until(
            http, server, lambda found: any(each.name == "pathways_sessions_unreachable" for each in found)
        )
    assert [(each.name, each.value) for each in found] == [("pathways_sessions_unreachable", 0)]


async def test_figures_that_are_out_of_date_are_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    hub = Hub()
    metrics = server_metrics.ServerMetrics(hub)

    def shown():
        return [each.name for each in metrics.collect() if each.name == "pathways_sessions_unreachable"]

    try:
        async with asyncio.timeout(DEADLINE):
            # The first collection starts the reading.
            while True:
                if shown():
                    break
                await asyncio.sleep(0.01)
        monkeypatch.setattr(server_metrics, "FRESH_SECONDS", 0.0)
        assert not shown()
    finally:
        await hub.close()


async def test_the_metrics_are_for_those_who_are_logged_in(server):
    async with server.http(token="") as http, http.get(f"{server.url}{BASE_URL}metrics") as answer:
        assert answer.status == 403
