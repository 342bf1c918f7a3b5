"""State that all pages of a server share: one watch of each cluster, none without listeners, and the sweeping."""

import asyncio
import contextlib
import subprocess
import sys

import kinds
import pytest
from holders import hold
from kubeconfigs import write
from session_records import new_record

from pathways_jupyter.base.errors import ClusterError, SessionError
from pathways_jupyter.base.events import SessionState, SuspendedArrays
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.server import server_state as module
from pathways_jupyter.server.scope import Scope
from pathways_jupyter.server.server_state import ServerState
from pathways_jupyter.service import discovery
from pathways_jupyter.service.derivation import outline
from pathways_jupyter.service.podstate import State
from pathways_jupyter.session import registry
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.verdicts import SessionCommand, verdict

DEADLINE = 60
PREPARED = """
import asyncio, sys
from pathways_jupyter.server.server_state import ServerState

async def main():
    server_state = ServerState()
    print("pathways_jupyter.kube.library" in sys.modules)
    server_state.prepare()
    await server_state._preparing
    print("pathways_jupyter.kube.library" in sys.modules)
    await server_state.close()

asyncio.run(main())
"""


class Page:
    """The messages that one page receives about a cluster."""

    def __init__(self) -> None:
        self.received = asyncio.Queue()
        self.slices = {}

    def __call__(self, message):
        self.received.put_nowait(message)

    async def until(self, true):
        """Receive messages until `true` holds of the slices."""
        async with asyncio.timeout(DEADLINE):
            while not (self.slices and true(self.slices)):
                message = await self.received.get()
                if message["type"] == "tables":
                    self.slices = {} if message["reset"] else self.slices
                    self.slices |= {row["number"]: row for row in message["put"].get("slices", ())}


@pytest.fixture
async def server_state(monkeypatch, machine):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", machine.environ["JUPYTER_RUNTIME_DIR"])
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.2)
    made = ServerState()
    yield made
    await made.close()


@pytest.fixture
def scope(cluster, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(cluster))
    return Scope()


async def test_the_error_of_a_trace_is_that_of_its_process_in_words_for_a_page(server_state):
    with pytest.raises(SessionError, match="There is no session on this machine") as failed:
        await server_state.profile("4f2a", 1)
    assert "%pathways connect makes one." in failed.value.advice(Face.SIDEBAR)


async def test_the_log_of_a_pod_that_is_gone_asks_for_no_other_name(server_state, scope):
    with pytest.raises(ClusterError, match="Pod pathways-proxy-gone is gone, and its log with it") as failed:
        async for _ in server_state.log(scope, "pathways-proxy-gone", follow=False):
            pass
    assert "Check the name" not in failed.value.hint


def all_ready(slices):
    return len(slices) == 2 and all(row["health"] == "ready" for row in slices.values())


async def cordon(client, node, *, on):
    """Lets a node take no new pods, or take them again."""
    await objects.patch(client, kinds.NODES, node, {"spec": {"unschedulable": on}})


async def test_a_watch_that_ends_before_its_cluster_has_answered_leaves_no_task(server_state, monkeypatch, tmp_path):
    async def silent(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    monkeypatch.setenv("KUBECONFIG", write(tmp_path / "config", {"server": address}, {"token": "t"}))
    watch, page = await server_state.watch(Scope()), Page()
    watch.add(page)
    watch.remove(page)
    async with asyncio.timeout(DEADLINE / 2):
        await watch.closed.wait()
        while server_state._tasks:
            await asyncio.wait(server_state._tasks)
    server.close()


async def test_a_worker_that_dies_is_seen_to_go_and_to_come_back(server_state, scope):
    page = Page()
    watch = await server_state.watch(scope)
    watch.add(page)
    await page.until(all_ready)
    pod, node = (page.slices[1]["hosts"][0][key] for key in ("pod", "node"))
    async with Client(watch.cluster) as client:
        # Cordon the node: a new worker could be ready before pages are notified of the old one's end.
        await cordon(client, node, on=True)
        await objects.delete(client, objects.PODS, pod, namespace="default")
        await page.until(lambda slices: slices[1]["health"] != "ready")
        await cordon(client, node, on=False)
    await page.until(lambda slices: all_ready(slices) and slices[1]["hosts"][0]["pod"] != pod)


@pytest.mark.parametrize("known", [True, False])
def test_a_server_imports_its_client_before_the_first_look_if_there_is_a_cluster(known, machine, cluster, tmp_path):
    elsewhere = {"KUBECONFIG": str(tmp_path / "none"), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", PREPARED],
        env={**machine.environ, "KUBECONFIG": str(cluster), **({} if known else elsewhere)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert said.stdout.split() == ["False", str(known)]


async def test_the_dialog_shows_what_is_free(server_state, scope):
    (service,) = await server_state.services(scope)
    (capacity,) = service["capacity"]
    assert (capacity["instance_type"], capacity["total"]) == ("tpuv6e:2x2", 2)


async def test_following_a_log_stops_when_the_reader_does(server_state, scope):
    (service,) = await server_state.services(scope)
    lines = server_state.log(scope, service["pod"], follow=True)
    async with asyncio.timeout(DEADLINE), contextlib.aclosing(lines):
        assert await anext(lines)


async def test_a_session_that_died_with_its_kernel_is_cleaned_up(server_state, scope, cluster, monkeypatch):
    monkeypatch.setattr(module, "SUPERVISOR_SECONDS", 0.1)
    record = dead_session(cluster, kernel_id="k-dead")
    other = dead_session(cluster, kernel_id="k-else", session="0badc0ffee")
    async with asyncio.timeout(DEADLINE):
        await server_state.kernel_ended("k-dead")
    assert not record.exists()
    assert other.exists()
    assert "0badc0ffee" in await server_state.sweep(scope, dry_run=True)
    assert other.exists()
    await server_state.sweep(scope, dry_run=False)
    assert not other.exists()


async def test_disconnecting_a_session_whose_supervisor_is_gone_removes_what_it_left(server_state, scope, cluster):
    record = dead_session(cluster, kernel_id="k-dead")
    async with asyncio.timeout(DEADLINE):
        assert await server_state.act(record.stem, Method.DISCONNECT) is None
    assert not record.exists()


@pytest.mark.thorough
async def test_disconnecting_a_session_that_lives_asks_its_supervisor(server_state, cluster):
    link = hold(cluster)
    try:
        async with asyncio.timeout(DEADLINE):
            await server_state.act(link.session, Method.DISCONNECT)
            assert registry.read(link.session) is None
    finally:
        await asyncio.to_thread(link.close, patience=DEADLINE)


def dead_session(kubeconfig, *, kernel_id, session="deadbeef00"):
    """The record of a session whose supervisor is gone."""
    about = {"namespace": "default", "config": {"kubeconfig": str(kubeconfig)}, "state": SessionState.CONNECTED}
    registry.write(new_record(id=session, pid=1, kernel_pid=1, kernel_id=kernel_id, **about))
    return registry.record_path(session)


async def test_before_its_pods_are_known_a_service_is_drawn_as_its_jobs_describe_it(server_state, scope):
    page = Page()
    watch = await server_state.watch(scope)
    watch.add(page)
    await page.until(all_ready)
    async with Client(watch.cluster) as client:
        jobs = (await objects.list_(client, objects.JOBS, namespace="default")).items
        jobsets = (await objects.list_(client, objects.JOBSETS, namespace="default")).items
    (info,) = discovery.of_jobsets(jobsets)
    drawn = outline(info, jobs)
    assert drawn.state is State.READY
    assert [(each.index, each.state) for each in drawn.slices] == [(0, State.READY), (1, State.READY)]
    assert [len(each.hosts) for each in drawn.slices] == [len(page.slices[index]["hosts"]) for index in (0, 1)]
    # A Job none of whose pods is ready any more is no ready slice.
    failing = [{**job, "status": {}} if job["metadata"]["name"].endswith("-worker-1") else job for job in jobs]
    assert [each.state for each in outline(info, failing).slices] == [State.READY, State.STARTING]


@pytest.mark.parametrize("state", [SessionState.SUSPENDED, SessionState.RESUMING, SessionState.CLOSING])
async def test_a_page_that_shows_an_earlier_state_gets_no_proxy_where_none_is_offered(tmp_path, monkeypatch, state):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    saved = SuspendedArrays(4, 1_200_000_000, "gs://b/saved/u/suspended-ab", 1.0)
    record = new_record(state=state, saved=saved if state is not SessionState.CLOSING else None)
    registry.write(record)
    with pytest.raises(SessionError) as refused:
        await ServerState().act(record.id, Method.RECONNECT)
    assert str(refused.value) == verdict(record, SessionCommand.RECONNECT).sentence
    registry.remove(record)
