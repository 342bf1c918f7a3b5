"""Objects that are followed for as long as a program runs: their changes, also over outages, and the requests."""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

import pytest
from kinds import CONFIG_MAPS
from program_log import Log
from quiet_cluster import DEADLINE

from benchmarks.link import Link
from pathways_jupyter.base import tasks
from pathways_jupyter.kube import auth, informer, objects, watch
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.kube.watch import ChangeType
from pathways_jupyter.local.apiserver import app


class Listener:
    """Logs each change, and remembers the objects' data as it was given them."""

    def __init__(self):
        self.log, self.data = Log(), {}

    def __call__(self, change):
        name = change.object.get("metadata", {}).get("name", "")
        if change.type in {ChangeType.ADDED, ChangeType.MODIFIED}:
            self.data[name] = change.object["data"]
        self.log.write(f"{change.type}: {change.error}" if change.error else f"{change.type} {name}".strip())


def config_map(name, **labels):
    metadata = {"name": name, "namespace": "default", "labels": {"test": "informer", **labels}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "1"}}


@pytest.fixture
def watches(bench):
    """The lists and watches that the API server has been asked for, by verb."""
    counted = Counter()

    def audit(user, question):
        if question.resource == "configmaps" and question.verb in {"list", "watch"}:
            counted[question.verb] += 1

    bench.server.audit = audit
    return counted


@contextlib.asynccontextmanager
async def following(informer, resource=CONFIG_MAPS, **options):
    """Follow meanwhile; yields a listener that is in sync."""
    listener = Listener()
    task = asyncio.create_task(informer.follow(resource, listener, **options))
    await listener.log.until("SYNCED")
    try:
        yield listener
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_one_that_fails_gets_no_more_and_the_others_go_on(bench):
    def broken(change):
        if change.type is ChangeType.ADDED:
            raise ZeroDivisionError

    async with bench.client() as client:
        follows = Informer(client)
        async with following(follows, namespace="default", labels="test,part=b") as few:
            failing = asyncio.create_task(follows.follow(CONFIG_MAPS, broken))
            await objects.create(client, CONFIG_MAPS, config_map("a"))
            with pytest.raises(ZeroDivisionError):
                await asyncio.wait_for(failing, DEADLINE)
            await objects.create(client, CONFIG_MAPS, config_map("b", part="b"))
            await few.log.until("ADDED b")
            await objects.patch(client, CONFIG_MAPS, "b", {"metadata": {"labels": {"part": "c"}}}, namespace="default")
            await few.log.until("DELETED b")
        assert few.log == ["SYNCED", "ADDED b", "DELETED b"]


async def test_outdated_objects_are_reported_before_what_was_missed(bench, monkeypatch):
    """First the server goes, then the permission: for the latter, another watch begins with what is known."""
    monkeypatch.setattr(informer, "FIRST_PAUSE_SECONDS", 0.1)
    resource, allowed, may = bench.of(CONFIG_MAPS), True, app.may
    monkeypatch.setattr(app, "may", lambda store, user, question: allowed and may(store, user, question))
    async with bench.client() as client, following(Informer(client)) as one:
        for name in "ab":
            await objects.create(client, CONFIG_MAPS, config_map(name))
            await one.log.until(f"ADDED {name}")
        one.log.clear()
        await bench.restart(lambda: bench.store.delete(resource, "default", "a"))
        await one.log.until("SYNCED")
        assert [line.split(":")[0] for line in one.log] == ["LOST", "DELETED a", "SYNCED"]
        one.log.clear()

        def forbid():
            nonlocal allowed
            allowed = False
            bench.store.delete(resource, "default", "b")

        await bench.restart(forbid)
        await one.log.until("not allowed to list configmaps")
        allowed = True
        await one.log.until("SYNCED")
        assert [line.split(":")[0] for line in one.log] == ["LOST", "LOST", "DELETED b", "SYNCED"]


async def test_a_server_that_stops_answering_is_noticed_by_all_that_follow(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(watch, "ANSWER_SECONDS", 0.5)
    with Link(Path(bench.kubeconfig())) as link:
        async with Client(auth.load(str(link.write(tmp_path / "kubeconfig")))) as client:
            informer = Informer(client)
            async with following(informer) as one, following(informer, objects.PODS) as other:
                for each in (one, other):
                    each.log.clear()
                link.freeze()
                for each in (one, other):
                    await each.log.until("stopped answering")
                link.thaw()
                for each in (one, other):
                    await each.log.until("SYNCED")
                    assert [line.split(":")[0] for line in each.log] == ["LOST", "SYNCED"]


async def test_one_that_waits_for_another_asks_for_one_page_before(bench, watches, monkeypatch):
    monkeypatch.setattr(objects, "PAGE", 1)
    async with bench.client() as client:
        for name in "abc":
            await objects.create(client, CONFIG_MAPS, config_map(name))
        follows, other = Informer(client), asyncio.Event()
        waits = asyncio.create_task(follows.follow(CONFIG_MAPS, listener := Listener(), after=other))
        # Of the same server and client, so that a second page would have been asked for by then.
        for _ in range(5):
            async with following(follows, objects.SECRETS):
                pass
        assert watches["list"] == 1
        assert listener.log == []
        other.set()
        await listener.log.until("SYNCED")
        assert listener.log == ["ADDED a", "ADDED b", "ADDED c", "SYNCED"]
        assert watches["list"] == 3
        await tasks.stop(waits)
