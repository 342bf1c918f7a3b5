"""Documents about the API, from the types that are served."""

from __future__ import annotations

import pytest

from pathways_jupyter.local.apiserver.api_discovery import REVIEWS, discover, openapi_v2_as_protobuf
from pathways_jupyter.local.apiserver.resources import CRDS, VISIBLE_QUEUES
from pathways_jupyter.local.apiserver.store import Store


@pytest.fixture(scope="module")
def registry():
    return Store().resources


def listed(registry, path):
    return {each["name"]: each for each in discover(registry, path)["resources"]}


def test_every_group_version_and_resource_is_listed_under_its_path(registry):
    groups = {each["name"]: each for each in discover(registry, "/apis")["groups"]}
    for each in registry:
        path = f"/apis/{each.api_version}" if each.group else "/api/v1"
        found = listed(registry, path)
        # Kueue's other group has the waiting ones of a queue, and no queues.
        assert (each.plural in found) is (each != VISIBLE_QUEUES)
        if each != VISIBLE_QUEUES:
            assert (found[each.plural]["kind"], found[each.plural]["namespaced"]) == (each.kind, each.namespaced)
        assert (f"{each.plural}/status" in found) is each.has_status
        assert all(f"{each.plural}/{name}" in found for name in each.subresources)
        if each != VISIBLE_QUEUES:
            place = f"apis/{each.api_version}" if each.group else "api/v1"
            assert each.kind in discover(registry, f"/openapi/v3/{place}")["components"]["schemas"]
        if each.group:
            versions = [version["version"] for version in groups[each.group]["versions"]]
            assert each.version in versions
            assert discover(registry, f"/apis/{each.group}")["versions"] == groups[each.group]["versions"]


def test_reviews_can_only_be_created(registry):
    for group, version, kind, plural in REVIEWS:
        found = listed(registry, f"/apis/{group}/{version}")[plural]
        assert (found["kind"], found["verbs"], found["namespaced"]) == (kind, ["create"], False)


def test_what_waits_in_a_queue_has_no_document(registry):
    assert discover(registry, f"/openapi/v3/apis/{VISIBLE_QUEUES.api_version}") is None


@pytest.mark.parametrize("path", ["/apis/none", "/apis/batch/v2", "/api/v2", "/openapi/v3/apis/none/v1", "/x"])
def test_what_is_not_served_has_no_document(registry, path):
    assert discover(registry, path) is None


def test_a_definition_is_listed_while_it_is_there():
    store = Store()
    schema = {"openAPIV3Schema": {"type": "object"}}
    spec = {
        "group": "g.io",
        "names": {"plural": "xs", "kind": "X", "shortNames": ["x"]},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    path, document = "/apis/g.io/v1", "/openapi/v3/apis/g.io/v1"
    before = discover(store.resources, "/openapi/v3")["paths"]
    store.create(CRDS, {"metadata": {"name": "xs.g.io"}, "spec": spec})
    assert listed(store.resources, path)["xs"]["shortNames"] == ["x"]
    assert "X" in discover(store.resources, document)["components"]["schemas"]
    # Clients cache documents by their address, which changes with the document alone.
    after = discover(store.resources, "/openapi/v3")["paths"]
    assert {key: after[key] for key in before} == before
    assert after.keys() - before.keys() == {"apis/g.io/v1"}
    store.delete(CRDS, "", "xs.g.io")
    assert discover(store.resources, path) is None


def test_the_document_of_version_2_names_no_kind():
    assert openapi_v2_as_protobuf().startswith(b"\x0a\x032.0\x12")
