"""Sessions and their events as pages get them, whatever happens to the pages and to the connections between."""

import asyncio
import contextlib
import json
import tempfile

import pages
import pytest
from waits import frozen

from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.kernel.places import KernelPlace, PlaceFile
from pathways_jupyter.server.sessionwatch import SessionWatch
from pathways_jupyter.session import recording, registry
from pathways_jupyter.session.protocol import Method
from tests.server import conftest

DEADLINE = 60


class Page(pages.Page):
    """A page's messages, until it breaks as a WebSocket does that is being closed."""

    def __init__(self, breaks_at=-1):
        super().__init__(socket=None)
        self.breaks_at = breaks_at

    def __call__(self, message):
        if self.count == self.breaks_at:
            raise ConnectionError("closing")
        self.take(message)

    @property
    def count(self):
        return len(self.messages)


@pytest.fixture
def runtime(monkeypatch):
    """A directory of the test's own, in which there is no session of another test."""
    # A socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pj-") as name:
        monkeypatch.setenv("JUPYTER_RUNTIME_DIR", name)
        yield


@pytest.fixture
def connect(runtime, cluster):
    """Start sessions of one slice, each with this process for its kernel; the test's end ends them."""
    with conftest.connecting(cluster) as start:
        yield start


@pytest.fixture
async def watching():
    made = SessionWatch()
    yield made
    made.stop()


async def kill_worker(cluster, record):
    """Delete the worker of a session's slice."""
    (held,) = registry.read(record["id"]).slices
    await conftest.kill_worker(cluster, held.number)


def kinds(page, session):
    return [event["kind"] for event in page.events.get(session, ())]


def seen(session, kind):
    return lambda page: kind in kinds(page, session)


@pytest.mark.thorough
async def test_a_page_that_breaks_at_any_point_keeps_no_event_from_the_others(connect, watching, cluster):
    good = Page()
    watching.add(good)
    pages = [Page(breaks_at=point) for point in range(12)]
    for page in pages:
        watching.add(page)
    _, record = await asyncio.to_thread(connect)
    await good.until(lambda page: any(row["state"] == "connected" for row in page.sessions))
    await kill_worker(cluster, record)
    await good.until(seen(record["id"], "slice-down"))
    await good.until(seen(record["id"], "slice-healed"))
    # How many messages there are depends on how many events come together.
    assert len([page for page in pages if page.count == page.breaks_at]) > 3
    late = Page()
    watching.add(late)
    assert kinds(late, record["id"]) == kinds(good, record["id"])
    assert late.news == []


async def test_what_is_followed_is_followed_again_after_the_connection_broke(connect, watching, cluster, tmp_path):
    _, record = await asyncio.to_thread(connect)
    cut = asyncio.Event()

    async def relay(reader, writer):
        """Pass on what the supervisor sends; the first time only the half of it."""
        with contextlib.suppress(OSError):
            from_supervisor, to_supervisor = await asyncio.open_unix_connection(record["socket"])
            first = await reader.readline()
            if first:
                to_supervisor.write(first)
            lines = 0
            while line := await from_supervisor.readline():
                writer.write(line)
                lines += 1
                if lines == 3 and not cut.is_set():
                    cut.set()
                    break
            to_supervisor.close()
        writer.close()

    server = await asyncio.start_unix_server(relay, str(tmp_path / "relay"))
    path = registry.record_path(record["id"])
    written = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**written, "socket": str(tmp_path / "relay")}), encoding="utf-8")
    page = Page()
    watching.add(page)
    async with asyncio.timeout(DEADLINE):
        await cut.wait()
    await kill_worker(cluster, record)
    await page.until(seen(record["id"], "slice-down"))
    # Nothing came twice, though the supervisor sent what it remembers a second time.
    events = [json.dumps(event) for event in page.events[record["id"]]]
    assert len(events) == len(set(events))
    assert "connected" in [event["data"].get("state") for event in page.events[record["id"]]]
    server.close()


@pytest.mark.thorough
async def test_a_supervisor_that_stops_answering_is_reported_and_so_is_that_it_answers_again(connect, watching):
    _, record = await asyncio.to_thread(connect)
    page = Page()
    watching.add(page)
    await page.until(lambda page: [row["silent"] for row in page.sessions] == [False])
    with frozen(record["pid"]):
        await page.until(lambda page: [(row["silent"], row["alive"]) for row in page.sessions] == [(True, True)])
    await page.until(lambda page: [row["silent"] for row in page.sessions] == [False])


async def test_a_page_that_comes_back_gets_each_event_once(connect, watching):
    """It keeps the events that it has until the list is reset."""
    page = Page()
    watching.add(page)
    _, record = await asyncio.to_thread(connect)
    await page.until(
        lambda page: any(each["data"].get("state") == "connected" for each in page.events.get(record["id"], ()))
    )
    known = page.events[record["id"]]
    watching.remove(page)
    begun = page.count
    watching.add(page)
    await page.until(lambda page: page.count > begun + len(known) and len(page.events[record["id"]]) >= len(known))
    again = page.events[record["id"]]
    assert again == [each for at, each in enumerate(again) if each not in again[:at]]


async def test_the_timeline_of_a_session_outlives_it(connect, watching, cluster):
    link, record = await asyncio.to_thread(connect)
    page = Page()
    watching.add(page)
    await page.until(lambda page: [row["state"] for row in page.sessions] == ["connected"])
    await asyncio.to_thread(lambda: link.answer(link.ask(Method.DISCONNECT), patience=DEADLINE))
    await page.until(lambda page: not page.sessions and page.ended)
    (over,) = page.ended
    assert (over["id"], over["state"], over["alive"], over["notebook"]) == (record["id"], "closed", False, "a.ipynb")
    assert over["state_since"] > record["created"]
    await page.until(lambda page: [each["data"].get("state") for each in page.events[record["id"]][-1:]] == ["closed"])
    # A page that is loaded again leaves no listener for a moment.
    watching.remove(page)
    again = Page()
    watching.add(again)
    await again.until(lambda page: [row["id"] for row in page.ended] == [record["id"]] and page.events)
    assert again.events == page.events
    assert again.news == []


@pytest.mark.thorough
async def test_only_so_many_ended_sessions_are_kept(connect, watching, monkeypatch):
    monkeypatch.setattr("pathways_jupyter.server.sessionwatch.MAX_ENDED", 1)
    page = Page()
    watching.add(page)
    made = []
    for _ in range(2):
        link, record = await asyncio.to_thread(connect)
        made.append(record["id"])
        await page.until(lambda page: [row["state"] for row in page.sessions] == ["connected"])
        await asyncio.to_thread(lambda link=link: link.answer(link.ask(Method.DISCONNECT), patience=DEADLINE))
        await page.until(lambda page: [row["id"] for row in page.ended] == made[-1:])
    late = Page()
    watching.add(late)
    assert list(late.events) == made[-1:]


async def test_a_look_that_fails_is_repeated_in_full_and_what_is_unchanged_is_not_read_again(
    runtime, watching, monkeypatch
):
    looks, reads = asyncio.Queue(), []

    def fingerprint(directory):
        looks.put_nowait(len(reads))
        return "unchanged"

    async def read():
        reads.append(watching._seen)
        if len(reads) == 1:
            raise OSError("the directory is gone")

    monkeypatch.setattr("pathways_jupyter.server.sessionwatch.runtime_files.fingerprint", fingerprint)
    monkeypatch.setattr(watching, "_read", read)
    watching.add(print)
    async with asyncio.timeout(DEADLINE):
        # Each looks at two directories.
        assert [await looks.get() for _ in range(8)][::2] == [0, 1, 2, 2]


async def test_a_page_that_closes_during_the_first_look_is_not_kept(runtime, watching):
    closed, other = Page(), Page()
    watching.add(closed)
    watching.add(other)
    await asyncio.sleep(0)
    watching.remove(closed)
    await other.until(lambda page: page.count)
    assert closed.count == 0


@pytest.mark.thorough
async def test_a_page_gets_the_newest_state_of_a_training_run_and_its_events(connect, watching, cluster):
    page, late = Page(), Page()
    watching.add(page)
    _, record = await asyncio.to_thread(connect)
    written = registry.read(record["id"])
    for step in range(3):
        event = Event(EventKind.ELASTIC, f"Step {step} is complete.", data={"what": "resumed"})
        await asyncio.to_thread(
            recording.record, written, [event, Event(EventKind.ELASTIC_RUN, "", data={"step": step})]
        )
    await page.until(lambda page: page.runs.get(record["id"]) == {"step": 2})
    assert kinds(page, record["id"]).count("elastic") == 3
    assert "elastic-run" not in kinds(page, record["id"])
    watching.add(late)
    assert late.runs == page.runs


async def test_a_kernel_beside_the_chips_is_published_with_what_it_waits_for_until_it_has_gone(runtime, watching):
    file = PlaceFile(KernelPlace("one", "lab", cluster="big", where={"context": "big", "namespace": "team"}))
    page = Page()
    watching.add(page)
    await page.until(lambda page: page.kernels)
    (kernel,) = page.kernels
    assert (kernel["kernel_id"], kernel["cluster"], kernel["ready"]) == ("one", "big", False)
    assert kernel["scope"] == {"context": "big", "namespace": "team", "session": "", "kernel": "", "local": False}
    file.update(message="Waits for a node: Insufficient cpu.")
    await page.until(lambda page: [each["message"] for each in page.kernels] == ["Waits for a node: Insufficient cpu."])
    other = PlaceFile(KernelPlace("two", "lab", where={"kubeconfig": "/somewhere"}))
    await page.until(lambda page: len(page.kernels) == 2)
    assert page.kernels[1]["scope"] == {"context": "", "namespace": "", "session": "", "kernel": "two", "local": False}
    file.close()
    await page.until(lambda page: [each["kernel_id"] for each in page.kernels] == ["two"])
    other.close()
