"""Messages to pages from a real server while clusters, kubeconfigs, sessions and other pages come and go."""

import asyncio
import dataclasses
import json
import math
import re
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pages import DEADLINE, opened
from session_records import bare_record

from pathways_jupyter.base.events import SessionState
from pathways_jupyter.server import cluster_view
from pathways_jupyter.server.cluster_view import ClusterView
from pathways_jupyter.server.scope import Scope
from pathways_jupyter.server.server_state import ServerState
from pathways_jupyter.server.updates import BEAT_SECONDS
from pathways_jupyter.session import registry
from pathways_jupyter.session.protocol import Method
from tests.server.conftest import UNREACHABLE, connecting, kill_worker, running


@pytest.fixture
def connect(nothing, cluster, monkeypatch):
    """Start sessions where the server looks for them, on a cluster that its kubeconfig does not know."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", nothing["JUPYTER_RUNTIME_DIR"])
    with connecting(cluster) as start:
        yield start


def all_ready(page):
    return page.live and len(page.slices) == 2 and all(row["health"] == "ready" for row in page.slices.values())


def failed(page):
    return page.watch is not None and page.watch["watch"] == "failed"


@pytest.mark.thorough
async def test_pages_whose_connection_is_cut_keep_no_event_from_the_others(server, connect, cluster):
    async with AsyncExitStack() as stack:
        good = await stack.enter_async_context(opened(server))
        http = await stack.enter_async_context(server.http())
        doomed = [await http.ws_connect(server.route("updates")) for _ in range(20)]
        starting = asyncio.create_task(asyncio.to_thread(connect))
        for socket in doomed[:10]:
            # One after the other, each in the middle of the events of connecting.
            await socket.receive()
            socket._response.connection.transport.abort()
        _, record = await starting
        session = record["id"]
        await good.until(lambda page: [row["state"] for row in page.sessions] == ["connected"])
        (held,) = good.sessions[0]["slices"]
        await kill_worker(cluster, held["number"])
        for socket in doomed[10:]:
            # A closing handshake that the page begins and does not wait for.
            await socket._writer.close(1001, b"")
            socket._response.connection.transport.abort()
        for kind in ("slice-down", "slice-healed"):
            await good.until(lambda page, kind=kind: kind in [event["kind"] for event in page.events.get(session, ())])
        await good.until(lambda page: page.sessions[0]["state"] == "connected")
        new = await stack.enter_async_context(opened(server))
        await new.until(lambda page: page.events.get(session) == good.events[session])


@pytest.mark.thorough
async def test_a_scope_that_means_the_same_cluster_has_its_identity_and_is_live_at_once(
    server, connect, cluster, set_up
):
    set_up(cluster.read_text(encoding="utf-8"))
    _, record = await asyncio.to_thread(connect)
    async with opened(server) as page:
        await page.until(lambda page: page.sessions)
        scope = page.sessions[0]["scope"]
        assert scope == {"context": "", "namespace": "default", "session": record["id"], "local": False, "kernel": ""}
        await page.look(**scope)
        await page.until(all_ready)
        (held,) = [row["holder"] for row in page.slices.values() if row["holder"]] or [None]
        identity, before = page.identity, len(page.messages)
        # What a page does when its session has ended: it looks where the kubeconfig says.
        await page.look()
        await page.until(lambda page: {"type": "tables", "scope": page.scope}.items() <= page.messages[-1].items())
        assert page.named["context"] == "pathways-local"
        assert all_ready(page)
        news = [message for message in page.messages[before:] if message["type"] in {"watch", "tables", "named"}]
        assert {message["identity"] for message in news} == {identity}
        assert [message["watch"] for message in news if message["type"] == "watch"] == ["live"]
        assert held is None or (held["session"], held["notebook"]) == (record["id"], "a.ipynb")


async def test_a_slice_says_which_session_of_which_user_holds_it(server, connect, cluster):
    _, one = await asyncio.to_thread(connect)
    _, two = await asyncio.to_thread(connect)
    async with opened(server) as page:
        await page.until(lambda page: [row["state"] for row in page.sessions] == ["connected", "connected"])
        await page.look(session=one["id"])
        await page.until(lambda page: len([row for row in page.slices.values() if row["holder"]]) == 2)
        holders = {number: row["holder"] for number, row in page.slices.items()}
        for row in page.sessions:
            # Both call their slice 0; the service has one name for each.
            (held,) = row["slices"]
            assert held["index"] == 0
            assert holders[held["number"]]["session"] == row["id"]
            assert holders[held["number"]]["user"] == one["user"]
            assert holders[held["number"]]["mine"]
        assert {holder["session"] for holder in holders.values()} == {one["id"], two["id"]}


async def test_a_changed_context_is_another_identity_and_shows_no_row_of_the_former_cluster(server, cluster, set_up):
    text = cluster.read_text(encoding="utf-8")
    set_up(text)
    async with opened(server) as page:
        await page.look()
        await page.until(all_ready)
        first = page.identity
        set_up(UNREACHABLE)
        await page.until(failed)
        assert "127.0.0.1:1" in page.watch["problem"]["message"]
        assert page.named["context"] == "gone"
        assert page.identity not in {first, ""}
        assert page.rows == {}
        assert page.watch["as_of"] == 0
        set_up(text)
        await page.until(all_ready)
        assert page.identity == first


async def test_a_kubeconfig_that_cannot_be_used_says_so_until_it_can(server, cluster, set_up):
    async with opened(server) as page:
        set_up("clusters: [")
        await page.look()
        await page.until(failed)
        assert ".kube/config" in page.watch["problem"]["message"]
        assert "KUBECONFIG" in page.watch["problem"]["hint"]
        assert "--" not in page.watch["problem"]["hint"]
        assert page.identity == ""
        set_up(cluster.read_text(encoding="utf-8"))
        await page.until(all_ready)


@pytest.fixture
def beside_embedded(machine, cluster, tmp_path):
    """A server on the machine on which the embedded cluster runs; nothing else is set up."""
    with running(tmp_path, {**machine.environ, "HOME": str(tmp_path)}) as made:
        yield made


@pytest.mark.thorough
async def test_the_embedded_cluster_is_no_substitute_for_a_kubeconfig_that_cannot_be_used(beside_embedded):
    async with opened(beside_embedded) as page, beside_embedded.http() as http:
        await page.look()
        await page.until(all_ready)
        assert page.named["local"]
        beside_embedded.set_up("clusters: [")
        await page.until(failed)
        assert ".kube/config" in page.watch["problem"]["message"]
        assert page.rows == {}
        async with http.get(beside_embedded.route("services")) as answer:
            assert answer.status == 400
            assert ".kube/config" in (await answer.json(content_type=None))["message"]
        # Asked for by name it is served.
        await page.look(local=True)
        await page.until(all_ready)


@pytest.mark.thorough
async def test_an_embedded_cluster_that_ends_is_said_to_be_gone_and_the_next_one_is_found(own):
    machine, server = own
    await asyncio.to_thread(machine.cli, "local", "up")
    async with opened(server) as page:
        await page.look()
        await page.until(all_ready)
        first = page.identity
        await asyncio.to_thread(machine.cli, "local", "down")
        await page.until(failed)
        assert "embedded cluster" in page.watch["problem"]["message"]
        assert "ended" in page.watch["problem"]["message"]
        assert "local up" in page.watch["problem"]["hint"]
        assert (page.rows, page.identity) == ({}, "")
        await asyncio.to_thread(machine.cli, "local", "up")
        await page.until(all_ready)
        assert page.identity != first


@pytest.fixture
def own(machine, tmp_path_factory):
    """A machine with an embedded cluster of its own, which may end, and a server on it."""
    with tempfile.TemporaryDirectory(prefix="pj-") as name:
        environ = {**machine.environ, "JUPYTER_RUNTIME_DIR": f"{name}/runtime", "HOME": name}
        there = dataclasses.replace(machine, environ=environ)
        with running(tmp_path_factory.mktemp("own"), environ) as made:
            yield there, made
        there.cli("local", "down", "--yes")


@pytest.mark.thorough
async def test_the_kubeconfig_of_the_servers_configuration_is_used(nothing, cluster, tmp_path):
    more = f"c.PathwaysJupyter.kubeconfig = {str(cluster)!r}\n"
    with running(tmp_path, nothing, more=more) as server:
        async with opened(server) as page, server.http() as http:
            await page.look()
            await page.until(all_ready)
            async with http.get(server.route("contexts")) as answer:
                assert (await answer.json())["current"] == "pathways-local"


@pytest.mark.thorough
async def test_a_record_leads_to_its_cluster_and_a_session_that_is_gone_to_none(server, connect):
    link, record = await asyncio.to_thread(connect)
    async with opened(server) as page, server.http() as http:
        async with http.get(server.route(f"services?session={record['id']}")) as answer:
            (service,) = (await answer.json())["services"]
        path = server.route(f"logs?pod={service['pod']}&session={record['id']}")
        async with http.get(path) as answer:
            assert "Pathways Server" in await answer.text()
        await asyncio.to_thread(lambda: link.answer(link.ask(Method.DISCONNECT), patience=DEADLINE))
        await page.look(session=record["id"])
        await page.until(failed)
        assert record["id"] in page.watch["problem"]["message"]
        await page.until(lambda page: [row["id"] for row in page.ended][-1:] == [record["id"]])
    assert registry.read(record["id"]) is None


async def test_a_page_gets_a_sign_of_life(server):
    async with opened(server) as page:
        await page.until(lambda page: {"type": "beat"} in page.messages)


def test_a_page_waits_for_three_signs_of_life_before_it_connects_again():
    text = (Path(__file__).parents[2] / "labextension/src/models/updates.ts").read_text(encoding="utf-8")
    (silence,) = re.findall(r"SILENCE_MILLISECONDS = ([\d_]+);", text)
    assert int(silence) == 3000 * BEAT_SECONDS


async def test_a_cluster_that_cannot_be_looked_up_because_of_a_bug_is_said_to_be_once(monkeypatch):
    """Otherwise the page would wait for ever."""
    looked = asyncio.Queue()

    async def resolve(scope):
        looked.put_nowait(scope)
        raise RuntimeError("boom")

    monkeypatch.setattr(cluster_view.scopes, "resolve", resolve)
    monkeypatch.setattr(cluster_view, "CHECK_SECONDS", 0.01)
    sent = []
    showing = asyncio.create_task(ClusterView(ServerState(), Scope(context="mine"), sent.append).show())
    try:
        async with asyncio.timeout(DEADLINE):
            for _ in range(3):
                await looked.get()
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
    (message,) = sent
    assert (message["watch"], message["scope"]["context"]) == ("failed", "mine")
    assert "boom" in message["problem"]["message"]
    assert "log of the Jupyter server" in message["problem"]["hint"]


async def test_a_number_that_json_does_not_have_costs_a_page_one_message_and_not_its_connection(server, nothing):
    runtime = Path(nothing["JUPYTER_RUNTIME_DIR"]) / "pathways"
    runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    record = runtime / "0123456789.json"
    endless = bare_record(id=record.stem, state=SessionState.LOST, instances={"tpuv6e:2x2": math.inf})
    record.write_text(json.dumps(endless.to_json()))
    try:
        async with opened(server) as page:
            await page.until(lambda page: {"type": "unreadable"} in page.messages)
            record.unlink()
            await page.until(lambda page: page.messages[-1]["type"] == "sessions")
            assert page.sessions == []
            assert [message["type"] for message in page.messages].count("hello") == 1
    finally:
        record.unlink(missing_ok=True)
