"""Profiles of a session that a page asks for, through a real server on the embedded cluster."""

import asyncio
import contextlib

import psutil
import pytest
from waits import wait_until

from tests.server import conftest

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def profile_server(cluster, machine, tmp_path_factory):
    with conftest.running(tmp_path_factory.mktemp("profiles"), machine.environ) as made:
        yield made


@pytest.fixture
def session(cluster, machine, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", machine.environ["JUPYTER_RUNTIME_DIR"])
    with conftest.connecting(cluster) as connect:
        yield connect()[1]["id"]


def tracing(session):
    """The processes that take a trace of a session."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if {"profile", session} <= set(process.cmdline()):
                found.append(process)
    return found


@pytest.mark.thorough
async def test_a_trace_ends_with_the_request_of_its_page(profile_server, session):
    route = profile_server.route(f"sessions/{session}/profile")
    async with profile_server.http() as http:
        page = asyncio.create_task(http.post(route, json={"seconds": 60}))
        await asyncio.to_thread(wait_until, lambda: tracing(session))
        page.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await page
        await asyncio.to_thread(wait_until, lambda: not tracing(session), 45)
        # The proxy takes one trace at a time.
        async with http.post(route, json={"seconds": 1}) as answer:
            said = await answer.json()
    assert answer.status == 200, said
    assert "Nothing ran on the chips" in said["html"]
    assert said["location"].startswith("gs://pathways-local/profiles/")
