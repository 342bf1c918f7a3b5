from __future__ import annotations

import asyncio

import pytest

from pathways_jupyter.local.apiserver import watch_delivery
from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.resources import (
    CONFIG_MAPS,
    CRDS,
)
from pathways_jupyter.local.apiserver.selectors import label_test
from pathways_jupyter.local.apiserver.store import Store


def config_map(name: str, **data: str):
    return {"metadata": {"name": name}, "data": data}


@pytest.fixture
def store() -> Store:
    return Store()


def test_a_new_object_gets_what_only_the_server_may_give(store: Store) -> None:
    sent = {"metadata": {"name": "a", "uid": "mine", "resourceVersion": "99", "generation": 7}, "data": {}}

    made = store.create(CONFIG_MAPS, sent)

    assert made["metadata"]["uid"] != "mine"
    assert made["metadata"]["resourceVersion"] == str(store.revision)
    assert (made["kind"], made["apiVersion"], made["metadata"]["namespace"]) == ("ConfigMap", "v1", "default")
    assert sent["metadata"]["uid"] == "mine"


def test_generated_names_differ(store: Store) -> None:
    names = {store.create(CONFIG_MAPS, {"metadata": {"generateName": "a-"}})["metadata"]["name"] for _ in range(20)}

    assert len(names) == 20
    assert all(name.startswith("a-") and len(name) == 7 for name in names)


def test_a_name_is_taken_once(store: Store) -> None:
    store.create(CONFIG_MAPS, config_map("a"))

    with pytest.raises(StatusError, match='configmaps "a" already exists') as refused:
        store.create(CONFIG_MAPS, config_map("a"))

    assert refused.value.status == 409


def test_an_update_with_a_stale_revision_conflicts_and_changes_nothing(store: Store) -> None:
    first = store.create(CONFIG_MAPS, config_map("a", x="1"))
    store.update(CONFIG_MAPS, {**first, "data": {"x": "2"}})

    with pytest.raises(StatusError, match="the object has been modified") as refused:
        store.update(CONFIG_MAPS, {**first, "data": {"x": "3"}})

    assert refused.value.status == 409
    assert store.get(CONFIG_MAPS, "default", "a")["data"] == {"x": "2"}


def test_a_copy_from_get_is_ones_own(store: Store) -> None:
    store.create(CONFIG_MAPS, config_map("a", x="1"))

    store.get(CONFIG_MAPS, "default", "a")["data"]["x"] = "2"

    assert store.get(CONFIG_MAPS, "default", "a")["data"] == {"x": "1"}


def test_a_dry_run_answers_like_a_real_one_and_leaves_no_trace(store: Store) -> None:
    before = store.revision

    assert store.create(CONFIG_MAPS, config_map("a"), dry_run=True)["metadata"]["uid"]
    assert store.find(CONFIG_MAPS, "default", "a") is None
    store.create(CONFIG_MAPS, config_map("a"))
    store.delete(CONFIG_MAPS, "default", "a", dry_run=True)
    assert store.find(CONFIG_MAPS, "default", "a") is not None
    assert store.revision == before + 1


def test_a_finalizer_holds_an_object_until_it_is_taken_off(store: Store) -> None:
    store.create(CONFIG_MAPS, {"metadata": {"name": "a", "finalizers": ["x/y"]}})

    store.delete(CONFIG_MAPS, "default", "a")
    assert store.get(CONFIG_MAPS, "default", "a")["metadata"]["deletionTimestamp"]
    store.edit(CONFIG_MAPS, "default", "a", lambda obj: obj["metadata"].update(finalizers=[]))

    assert store.find(CONFIG_MAPS, "default", "a") is None


def test_a_definition_brings_a_type_and_takes_its_objects_along_when_it_goes(store: Store) -> None:
    definition = {
        "metadata": {"name": "things.example.org"},
        "spec": {
            "group": "example.org",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "properties": {"size": {"type": "integer", "default": 3}},
                                    "x-kubernetes-validations": [
                                        {"rule": "self == oldSelf", "message": "is immutable"}
                                    ],
                                }
                            },
                        }
                    },
                }
            ],
        },
    }
    store.create(CRDS, definition)
    things = store.resources.find("example.org", "v1", "things")
    assert things is not None

    made = store.create(things, {"metadata": {"name": "t"}, "spec": {}})
    assert made["spec"] == {"size": 3}
    with pytest.raises(StatusError, match="is immutable"):
        store.edit(things, "default", "t", lambda thing: thing["spec"].update(size=4))

    seen = store.watch(things)
    store.delete(CRDS, "", "things.example.org")
    assert store.resources.find("example.org", "v1", "things") is None
    assert store.list(things) == []
    assert asyncio.run(seen.batch())[-1].type == "DELETED"


async def test_a_watch_begins_with_what_there_is_and_goes_on_with_what_happens(store: Store) -> None:
    store.create(CONFIG_MAPS, config_map("a"))
    seen = store.watch(CONFIG_MAPS, "default")
    store.edit(CONFIG_MAPS, "default", "a", lambda obj: obj.update(data={"x": "y"}))
    store.delete(CONFIG_MAPS, "default", "a")

    changes = await seen.batch()

    assert [change.type for change in changes] == ["ADDED", "MODIFIED", "DELETED"]
    assert [change.revision for change in changes] == sorted(change.revision for change in changes)


async def test_a_watch_through_a_selector_sees_objects_come_and_go(store: Store) -> None:
    seen = store.watch(CONFIG_MAPS, test=label_test("on=yes"))
    store.create(CONFIG_MAPS, config_map("a"))
    for labels in ({"on": "yes"}, {"on": "yes", "more": "x"}, {"on": "no"}):
        store.edit(CONFIG_MAPS, "default", "a", lambda obj, labels=labels: obj["metadata"].update(labels=labels))

    assert [change.type for change in await seen.batch()] == ["ADDED", "MODIFIED", "DELETED"]


async def test_history_that_is_gone_is_410_and_the_future_is_waited_for(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(watch_delivery, "HISTORY", 3)
    for number in range(6):
        store.create(CONFIG_MAPS, config_map(f"a{number}"))

    with pytest.raises(StatusError) as gone:
        store.watch(CONFIG_MAPS, since=store.revision - 5)
    assert gone.value.status == 410
    assert len(await store.watch(CONFIG_MAPS, since=store.revision - 3).batch()) == 3
    future = store.watch(CONFIG_MAPS, since=store.revision + 1)
    for name in ("too-early", "wanted"):
        store.create(CONFIG_MAPS, config_map(name))
    assert [change.object["metadata"]["name"] for change in await future.batch()] == ["wanted"]


async def test_a_watcher_that_does_not_keep_up_is_cut_off(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(watch_delivery, "BACKLOG", 5)
    slow, quick = store.watch(CONFIG_MAPS), store.watch(CONFIG_MAPS)
    for number in range(7):
        store.create(CONFIG_MAPS, config_map(f"a{number}"))
        await quick.batch()

    with pytest.raises(StatusError) as cut:
        await slow.batch()

    assert cut.value.status == 410
    store.create(CONFIG_MAPS, config_map("b"))
    assert len(await quick.batch()) == 1


async def test_closing_the_store_ends_its_watches(store: Store) -> None:
    seen = store.watch(CONFIG_MAPS)
    waiting = asyncio.create_task(seen.batch())
    await asyncio.sleep(0)
    store.close()

    assert await waiting == []
