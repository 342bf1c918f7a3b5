import asyncio
import dataclasses

import pytest
from permissions import documented_rules

from pathways_jupyter.base import tpu
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.service import clusterwatch, names, service_jobset
from pathways_jupyter.service.clusterwatch import ClusterWatch
from pathways_jupyter.service.names import current_user

DEADLINE = 60.0


class Page:
    """A listener that keeps its messages, until it raises."""

    def __init__(self, raises_at: int = -1) -> None:
        self.messages: list[dict] = []
        self.raises_at = raises_at
        self._arrived = asyncio.Event()

    def __call__(self, message: dict) -> None:
        if len(self.messages) == self.raises_at:
            raise ConnectionError("closing")
        self.messages.append(message)
        self._arrived.set()

    async def until(self, true, since: int = 0) -> dict:
        """Return the first message after the first `since` of which `true` holds."""
        async with asyncio.timeout(DEADLINE):
            while True:
                self._arrived.clear()
                for message in self.messages[since:]:
                    if true(message):
                        return message
                await self._arrived.wait()


def watch_is(word):
    return lambda message: message.get("watch") == word


def puts(service):
    return lambda message: f"default/{service}" in [row["id"] for row in message.get("put", {}).get("services", ())]


async def create(client, name):
    spec = service_jobset.ServiceSpec(tpu.parse_instance_type("tpuv6e:2x2"), 2, "r/server:1", name=name)
    await objects.create(client, objects.JOBSETS, service_jobset.manifest(spec), namespace="default")


def holds(number, session):
    """Match messages that say who holds a slice; empty for a free slice."""
    return lambda message: any(
        row["number"] == number and (row["holder"] or {}).get("session", "") == session
        for row in message.get("put", {}).get("slices", ())
    )


def placed(number):
    """Return the line of a proxy's log that says where its first slice is."""
    return f"Transition slice 0 (tpuv6e:2x2) unplaced -> placed on {names.DEFAULT_SERVICE}-worker-{number}"


@pytest.fixture
async def watch(bench):
    made = ClusterWatch(auth.load(bench.kubeconfig()))
    yield made
    await made.close()


@pytest.fixture
async def page(watch):
    """One that listens from the beginning."""
    made = Page()
    watch.add(made)
    return made


async def test_the_documented_role_is_enough_to_see_a_service_come(bench, client):
    watch, page = ClusterWatch(auth.load(bench.kubeconfig(rules=documented_rules(), name="user"))), Page()
    watch.add(page)
    try:
        await page.until(watch_is("live"))
        await create(client, "late")
        await page.until(puts("late"))
    finally:
        await watch.close()
    assert not [message for message in page.messages if message.get("problem") is not None]


async def test_a_listener_that_raises_at_any_point_keeps_nothing_from_the_others(watch, client):
    broken, good = [Page(raises_at=point) for point in range(4)], Page()
    for page in (*broken, good):
        watch.add(page)
    await good.until(watch_is("live"))
    for name in ("one", "two", "three"):
        await create(client, name)
        await good.until(puts(name))
    # A later one gets everything, and one that fails while it is brought up to date nothing more.
    late = Page()
    watch.add(late)
    watch.add(Page(raises_at=0))
    assert {"default/one", "default/two", "default/three"} <= {
        row["id"] for row in late.messages[-1]["put"]["services"]
    }
    assert [len(page.messages) for page in broken] == [0, 1, 2, 3]
    for page in (good, late):
        watch.remove(page)
    assert not watch.has_listeners, "one that has failed is removed"


async def test_what_a_proxy_held_is_forgotten_with_the_proxy(bench, client, watch, page):
    await create(client, names.DEFAULT_SERVICE)
    made = await bench.proxy(client, "s1")
    await bench.proxy_printing(client, made, placed(1), name="proxy")
    await page.until(holds(1, "s1"))
    assert watch._placements
    since = len(page.messages)
    await objects.delete(client, objects.PODS, "proxy", namespace="default", grace_seconds=0)
    await objects.delete(client, objects.JOBS, made["metadata"]["name"], namespace="default")
    await page.until(holds(1, ""), since=since)
    assert not watch._placements


async def test_no_more_than_so_many_logs_are_followed_and_the_other_holders_are_counted(
    bench, client, watch, page, monkeypatch
):
    monkeypatch.setattr(clusterwatch, "MOST_LOGS", 1)
    await create(client, names.DEFAULT_SERVICE)
    for number, (session, user) in enumerate((("s0", "jane"), ("s1", current_user()))):
        made = await bench.proxy(client, session, user)
        await bench.proxy_printing(client, made, placed(number), name=session)
    # The user's own proxy, although it is the younger one.
    await page.until(holds(1, "s1"))
    (service,) = watch.pictures
    assert {each.session: each.placed for each in service.holders} == {"s0": None, "s1": 1}
    assert not service.certain
    # Once that one has gone, there is room for the other.
    since = len(page.messages)
    await objects.delete(client, objects.PODS, "s1", namespace="default", grace_seconds=0)
    await objects.delete(client, objects.JOBS, made["metadata"]["name"], namespace="default")
    await page.until(holds(0, "s0"), since=since)


async def test_what_cannot_be_reached_is_not_called_live_and_says_since_when(bench, client, watch, page):
    await create(client, "one")
    await page.until(puts("one"))
    before = len(page.messages)
    url = bench.server.url
    await bench.server.stop()
    lost = await page.until(watch_is("lost"), since=before)
    # It stays lost: changes of the other kinds of objects do not make the tables current.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10 * clusterwatch.COLLECT_SECONDS):
            await page.until(watch_is("live"), since=before)
    late = Page()
    watch.add(late)
    assert [message.get("watch", message["type"]) for message in late.messages] == ["lost", "tables"]
    assert {message["as_of"] for message in late.messages} == {lost["as_of"]}
    assert not watch.is_live
    await bench.server.start()
    assert bench.server.url == url
    live = await page.until(watch_is("live"), since=before)
    assert live["as_of"] > lost["as_of"]
    whole = await page.until(lambda message: message["type"] == "tables", since=page.messages.index(live))
    assert whole["reset"]


async def test_every_message_names_the_cluster_and_namespace_it_is_about(bench):
    cluster = auth.load(bench.kubeconfig())
    # The same cluster with another user and another context name.
    other = auth.load(bench.kubeconfig(name="other"))
    watches = [ClusterWatch(each) for each in (cluster, other, dataclasses.replace(cluster, namespace="elsewhere"))]
    pages = [Page() for _ in watches]
    try:
        for watch, page in zip(watches, pages, strict=True):
            watch.add(page)
        for page in pages:
            await page.until(lambda message: message.get("reset"))
        (one,), (two,), (three,) = [{message["identity"] for message in page.messages} for page in pages]
        assert one == two != three
    finally:
        for watch in watches:
            await watch.close()


async def test_slices_of_a_proxy_that_is_gone_are_not_given_to_its_successor(bench, client, watch):
    """A session's proxies have the same name; the second one's log has no slices yet."""
    rows: dict[str, dict] = {}
    received: asyncio.Queue[dict] = asyncio.Queue()
    watch.add(received.put_nowait)

    async def until(true) -> None:
        async with asyncio.timeout(DEADLINE):
            while not true():
                message = await received.get()
                if message["type"] == "tables":
                    if message["reset"]:
                        rows.clear()
                    rows.update({row["id"]: row for row in message["put"].get("proxies", ())})
                    for gone in message["drop"].get("proxies", ()):
                        rows.pop(gone, None)

    def health() -> list[str]:
        return [row["health"] for row in rows.values() if row["pod"]]

    await create(client, names.DEFAULT_SERVICE)
    for pod, line, expected in (("first", placed(0), "ready"), ("second", "Signaling to RM", "starting")):
        job = await bench.proxy(client, "a1b2")
        await bench.proxy_printing(client, job, line, name=pod)
        await until(lambda expected=expected: health() == [expected])
        await objects.delete(client, objects.PODS, pod, namespace="default", grace_seconds=0)
        await objects.delete(client, objects.JOBS, job["metadata"]["name"], namespace="default")
        await until(lambda: not rows)
