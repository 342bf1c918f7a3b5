import asyncio
import contextlib
import re

import pytest
from kinds import CONFIG_MAPS
from scripted_server import Scripted, busy, ok

from pathways_jupyter.base.errors import ApiError, Unreachable
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import Resource
from pathways_jupyter.kube.watch import (
    SERVER_SECONDS,
    ChangeType,
    KnownObjects,
    only_identity,
    watch,
)
from pathways_jupyter.kube.watch_group import WatchGroup, if_allowed

ADDED, MODIFIED, DELETED = ChangeType.ADDED, ChangeType.MODIFIED, ChangeType.DELETED
SYNCED, LOST = ChangeType.SYNCED, ChangeType.LOST
DEADLINE = 60.0
LABELS = "test=watch"


def config_map(name, **data):
    metadata = {"name": name, "namespace": "default", "labels": {"test": "watch"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class Follower:
    """Reads a watch one change at a time."""

    def __init__(self, client, **options):
        self.changes = watch(client, CONFIG_MAPS, namespace="default", **{"labels": LABELS, **options})

    async def next(self):
        async with asyncio.timeout(DEADLINE):
            change = await anext(self.changes)
        if change.type in {SYNCED, LOST}:
            return change.type
        return change.type, change.object["metadata"]["name"]

    async def take(self, count):
        return [await self.next() for _ in range(count)]

    async def settled(self):
        """Read until in sync again, past any number of losses."""
        seen = []
        while not seen or seen[-1] != SYNCED:
            seen.append(await self.next())
        return [each for each in seen if each not in {SYNCED, LOST}]


@contextlib.asynccontextmanager
async def following(client, **options):
    follower = Follower(client, **options)
    try:
        yield follower
    finally:
        await follower.changes.aclose()


async def test_a_reader_sees_what_there_is_and_then_each_change(bench):
    async with bench.client() as client:
        await objects.create(client, CONFIG_MAPS, config_map("a"))
        async with following(client) as follower:
            assert await follower.take(2) == [(ADDED, "a"), SYNCED]
            await objects.create(client, CONFIG_MAPS, config_map("b"))
            await objects.patch(client, CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace="default")
            await objects.delete(client, CONFIG_MAPS, "b", namespace="default")
            assert await follower.take(3) == [(ADDED, "b"), (MODIFIED, "a"), (DELETED, "b")]


async def test_one_object_can_be_followed_by_name(bench):
    async with bench.client() as client, following(client, name="b", labels="") as follower:
        assert await follower.next() == SYNCED
        await objects.create(client, CONFIG_MAPS, config_map("a"))
        await objects.create(client, CONFIG_MAPS, config_map("b"))
        assert await follower.next() == (ADDED, "b")


async def test_several_watches_are_read_together_and_a_wait_that_is_over_ends_none(bench):
    secrets = Resource("", "v1", "secrets", "Secret")
    async with bench.client() as client:
        watches = {
            CONFIG_MAPS: watch(client, CONFIG_MAPS, namespace="default", labels=LABELS),
            secrets: watch(client, secrets, namespace="default", labels=LABELS),
        }
        async with WatchGroup(watches) as changes:
            seen = []

            async def take(count):
                async with asyncio.timeout(DEADLINE):
                    while len(seen) < count:
                        seen.extend((resource.kind, change.type) for resource, change in await changes.batch())
                return sorted(seen)

            assert await take(2) == [("ConfigMap", SYNCED), ("Secret", SYNCED)]
            assert await changes.batch(0.1) == []
            await objects.create(client, CONFIG_MAPS, config_map("a"))
            await objects.create(client, secrets, {**config_map("a"), "kind": "Secret"})
            assert await take(4) == [("ConfigMap", ADDED), ("ConfigMap", SYNCED), ("Secret", ADDED), ("Secret", SYNCED)]


async def test_a_watch_that_is_forbidden_ends_the_wait_for_it_and_others_unless_it_only_explains_them(bench):
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]
    async with bench.client(name="limited", rules=rules) as client:

        def watches():
            allowed, forbidden = (watch(client, each, namespace="default") for each in (CONFIG_MAPS, objects.PODS))
            return allowed, forbidden

        async def read(changes):
            while True:
                await changes.batch()

        allowed, forbidden = watches()
        async with WatchGroup({CONFIG_MAPS: allowed, objects.PODS: forbidden}) as changes, asyncio.timeout(DEADLINE):
            with pytest.raises(ApiError, match="not allowed to list pods"):
                await read(changes)
        allowed, forbidden = watches()
        await objects.create(bench.client(name="admin"), CONFIG_MAPS, config_map("a"))
        async with WatchGroup({CONFIG_MAPS: allowed, objects.PODS: if_allowed(forbidden)}) as changes:
            async with asyncio.timeout(DEADLINE):
                assert {each for each, _ in await changes.batch()} == {CONFIG_MAPS}


@pytest.mark.parametrize("remembered", [100, 2])
async def test_a_restart_of_the_server_is_reported_and_nothing_is_missed(bench, monkeypatch, remembered):
    """Also where the server has forgotten what has happened meanwhile, so that the watch has to compare lists."""
    monkeypatch.setattr("pathways_jupyter.local.apiserver.watch_delivery.HISTORY", remembered)
    async with bench.client() as client:
        for name in "abc":
            await objects.create(client, CONFIG_MAPS, config_map(name))
        async with following(client) as follower:
            assert (await follower.take(4))[-1] == SYNCED
            await bench.server.stop()
            assert await follower.next() == LOST
            resource = bench.store.resources.of_kind("v1", "ConfigMap")
            bench.store.delete(resource, "default", "a")
            bench.store.delete(resource, "default", "b")
            bench.store.create(resource, config_map("b"))
            bench.store.create(resource, config_map("d"))
            await bench.server.start()
            changes = await follower.settled()
            assert sorted(changes) == [(ADDED, "b"), (ADDED, "d"), (DELETED, "a"), (DELETED, "b")]
            await objects.create(client, CONFIG_MAPS, config_map("e"))
            assert await follower.next() == (ADDED, "e")


async def test_a_list_that_expires_between_its_pages_is_begun_again(bench, monkeypatch):
    monkeypatch.setattr(objects, "PAGE", 2)
    monkeypatch.setattr("pathways_jupyter.local.apiserver.watch_delivery.HISTORY", 1)
    resource = bench.store.resources.of_kind("v1", "ConfigMap")
    async with bench.client() as client:
        for name in "abcde":
            await objects.create(client, CONFIG_MAPS, config_map(name))
        async with following(client) as follower:
            assert await follower.next() == (ADDED, "a")
            # The rest of the first page has arrived; the snapshot of the others is gone.
            bench.store.delete(resource, "default", "a")
            bench.store.delete(resource, "default", "e")
            for name in "fg":
                bench.store.create(resource, config_map(name))
            changes = await follower.settled()
            assert sorted(changes) == [(ADDED, name) for name in "bcdfg"] + [(DELETED, "a")]
            await objects.create(client, CONFIG_MAPS, config_map("h"))
            assert await follower.next() == (ADDED, "h")


async def test_a_lean_watch_says_which_object_was_deleted_and_changes_as_any_other(bench):
    resource = bench.store.resources.of_kind("v1", "ConfigMap")
    async with bench.client() as client:
        for name in "ab":
            await objects.create(client, CONFIG_MAPS, config_map(name, x="1"))
        async with following(client, known=KnownObjects(only_identity)) as follower:
            assert await follower.take(3) == [(ADDED, "a"), (ADDED, "b"), SYNCED]
            uid = (await objects.get(client, CONFIG_MAPS, "a", namespace="default"))["metadata"]["uid"]
            await bench.server.stop()
            assert await follower.next() == LOST
            bench.store.delete(resource, "default", "a")
            await bench.server.start()
            async with asyncio.timeout(DEADLINE):
                gone = await anext(follower.changes)
            assert (gone.type, gone.object["metadata"]["name"], gone.object["metadata"]["uid"]) == (DELETED, "a", uid)
            # Nothing is said of the object that has not changed.
            assert await follower.next() == SYNCED
            await objects.patch(client, CONFIG_MAPS, "b", {"data": {"x": "2"}}, namespace="default")
            async with asyncio.timeout(DEADLINE):
                changed = await anext(follower.changes)
            assert (changed.type, changed.object["data"]) == (MODIFIED, {"x": "2"})


async def test_a_dropped_connection_loses_and_repeats_no_change(bench):
    async with bench.client() as client, following(client) as follower:
        assert await follower.next() == SYNCED
        received = []
        for round_ in range(3):
            await objects.create(client, CONFIG_MAPS, config_map(f"m{round_}"))
            while len(received) <= round_:
                change = await follower.next()
                if change not in {SYNCED, LOST}:
                    received.append(change)
            await bench.restart()
        assert received == [(ADDED, "m0"), (ADDED, "m1"), (ADDED, "m2")]


async def test_a_flood_of_changes_arrives_in_order(bench):
    async with bench.client() as client, following(client) as follower:
        assert await follower.next() == SYNCED
        resource = bench.store.resources.of_kind("v1", "ConfigMap")
        for index in range(500):
            bench.store.create(resource, config_map(f"m{index:03}", blob="x" * 5000))
        assert await follower.take(500) == [(ADDED, f"m{index:03}") for index in range(500)]


async def test_a_kind_that_does_not_exist_is_reported(bench):
    async with bench.client() as client:
        changes = watch(client, Resource("no.such.group", "v1", "things", "Thing"), namespace="default")
        with pytest.raises(ApiError) as raised:
            await anext(changes)
    assert raised.value.status == 404


async def test_a_forbidden_watch_is_reported_and_not_retried_for_ever(bench):
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    async with bench.client(rules=rules, name="lister") as client, following(client) as follower:
        assert await follower.next() == SYNCED
        with pytest.raises(ApiError, match="not allowed to watch configmaps in namespace default"):
            await follower.next()


async def test_a_server_that_was_never_there_is_reported_at_once(bench, unused_port):
    async with bench.client(cluster={"server": f"https://127.0.0.1:{unused_port}"}) as client:
        with pytest.raises(Unreachable):
            await anext(watch(client, CONFIG_MAPS))


async def test_a_change_that_arrives_in_pieces_is_reassembled(bench):
    """A relay between client and server forwards one byte at a time."""

    async def relay(reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", bench.server.port)

        async def pump(source, sink, size):
            with contextlib.suppress(ConnectionError):
                while data := await source.read(size):
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, far_writer, 65536), pump(far_reader, writer, 97))

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as near:
        port = near.sockets[0].getsockname()[1]
        client = bench.client(cluster={"server": f"https://127.0.0.1:{port}"})
        async with following(client) as follower:
            assert await follower.next() == SYNCED
            await objects.create(client, CONFIG_MAPS, config_map("a", x="é" * 3000))
            assert await follower.next() == (ADDED, "a")
        client.close()


@pytest.mark.parametrize("status", [429, 503])
async def test_a_watch_begins_again_when_a_busy_server_wants_it_to(status, pauses):
    listed = ok({"metadata": {"resourceVersion": "1"}, "items": []})
    async with (
        Scripted(listed, busy(status, 7), busy(status, 7), listed) as server,
        following(server.client) as follower,
    ):
        # One loss, however often it is refused; then the list, because only that shows what was missed meanwhile.
        assert await follower.take(3) == [SYNCED, LOST, SYNCED]
        assert server.requests == ["GET"] * 4
    # Also that of the list, which the client itself repeats.
    assert [seconds > 7 for seconds in pauses] == [True, True]
    assert len(set(pauses)) == 2


async def test_watches_that_began_together_do_not_end_together(pauses):
    listed = ok({"metadata": {"resourceVersion": "1"}, "items": []})
    async with Scripted(listed, *[ok({})] * 8, busy(403)) as server, following(server.client) as follower:
        assert await follower.next() == SYNCED
        with pytest.raises(ApiError):
            await follower.next()
    ends = {int(re.search(r"timeoutSeconds=(\d+)", target)[1]) for target in server.targets[1:]}
    assert len(ends) > 1
    assert all(SERVER_SECONDS / 2 <= each <= SERVER_SECONDS for each in ends)
