"""Names, updates and deletions of single objects, without a store."""

from __future__ import annotations

import pytest

from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.object_lifecycle import LONGEST_STEM, is_held, mark_deleted, place, revised
from pathways_jupyter.local.apiserver.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    Object,
)

ENDING = {"metadata": {"name": "ending", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
HOMES = {"default": {"metadata": {"name": "default"}}, "ending": ENDING}


def find(resource, namespace, name):
    assert (resource, namespace) == (NAMESPACES, "")
    return HOMES.get(name)


def placed(resource, metadata: Object, namespace: str = "") -> Object:
    place(resource, metadata, namespace, find)
    return metadata


def test_an_object_goes_where_it_says_or_where_the_request_says():
    assert placed(CONFIG_MAPS, {"name": "a"}) == {"name": "a", "namespace": "default"}
    assert placed(CONFIG_MAPS, {"name": "a", "namespace": ""}, "default")["namespace"] == "default"
    assert placed(NODES, {"name": "n", "namespace": "default"}) == {"name": "n"}


@pytest.mark.parametrize(
    ("namespace", "status", "said"),
    [("nowhere", 404, 'namespaces "nowhere" not found'), ("ending", 403, "because it is being terminated")],
)
def test_an_object_needs_a_namespace_that_is_there_and_stays(namespace, status, said):
    with pytest.raises(StatusError, match=said) as refused:
        placed(CONFIG_MAPS, {"name": "a"}, namespace)
    assert refused.value.status == status


def test_an_object_needs_a_name():
    with pytest.raises(StatusError, match=r"metadata.name: Required value: name or generateName is required"):
        placed(PODS, {"name": ""})


def test_a_generated_name_is_cut_so_that_its_end_stays():
    name = placed(PODS, {"generateName": "x" * 300})["name"]
    assert len(name) == LONGEST_STEM + 5
    assert name.startswith("x" * LONGEST_STEM)


@pytest.mark.parametrize(
    ("resource", "name", "fits"),
    [
        (PODS, "a.b-c", True),
        (PODS, "a" * 253, True),
        (PODS, "a" * 254, False),
        *((PODS, name, False) for name in ("A", "a_b", "-a", "a/b", "..", "a b")),
        (PODS, 5, False),
        (SERVICES, "a.b", False),
        (SERVICES, "a" * 63, True),
        (SERVICES, "a" * 64, False),
        (NAMESPACES, "a.b", False),
        (CLUSTER_ROLES, "system:Node_x", True),
        (CLUSTER_ROLES, "a/b", False),
        (CLUSTER_ROLES, "..", False),
    ],
)
def test_which_names_fit_depends_on_the_kind(resource, name, fits):
    if fits:
        assert placed(resource, {"name": name})["name"] == name
        return
    with pytest.raises(StatusError, match=r"metadata.name: Invalid value") as refused:
        placed(resource, {"name": name})
    assert refused.value.status == 422


@pytest.mark.parametrize(
    ("field", "key", "value"),
    [("labels", "a b", "x"), ("labels", "a", "x y"), ("labels", "a", 1), ("annotations", "-", "x")],
)
def test_labels_and_annotations_are_checked(field, key, value):
    with pytest.raises(StatusError, match=f"metadata.{field}: Invalid value"):
        placed(PODS, {"name": "p", field: {key: value}})
    assert placed(PODS, {"name": "p", "annotations": {"a": "x y\n" * 100}})


def node(**fields: Object) -> Object:
    metadata = {"name": "n", "uid": "1", "generation": 3, "creationTimestamp": "then"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, **fields}


def test_an_update_changes_neither_the_status_nor_what_only_the_server_writes():
    old = node(spec={"a": 1}, status={"phase": "up"})
    new = node(spec={"a": 2}, status={"phase": "down"})
    new["metadata"] = {"name": "n", "uid": "2", "deletionTimestamp": "now", "labels": {"a": "b"}}
    made = revised(NODES, new, old, "")
    assert made["status"] == {"phase": "up"}
    assert made["spec"] == {"a": 2}
    assert made["metadata"] == {**old["metadata"], "labels": {"a": "b"}}


def test_an_update_of_the_status_changes_nothing_else():
    old = node(spec={"a": 1}, status={"phase": "up"})
    new = node(spec={"a": 2}, status={"phase": "down"})
    assert revised(NODES, new, old, "status") == {**old, "status": {"phase": "down"}}
    assert revised(NODES, node(), old, "status") == old


def test_a_binding_changes_the_node_alone():
    old = {"metadata": {"name": "p"}, "spec": {"a": 1}}
    assert revised(PODS, {"spec": {"a": 2, "nodeName": "n0"}}, old, "binding")["spec"] == {"a": 1, "nodeName": "n0"}


def pod(phase: str = "Running", node: str = "n0", **metadata: Object) -> Object:
    return {"metadata": {"name": "p", **metadata}, "spec": {"nodeName": node}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("obj", "grace", "seconds"),
    [
        (pod(), None, 30),
        (pod(), 5, 5),
        (pod(), 0, 0),
        (pod(), -1, 0),
        (pod(node=""), None, 0),
        (pod("Succeeded"), 60, 0),
        (pod("Failed"), None, 0),
    ],
)
def test_a_pods_processes_get_time_to_end(obj, grace, seconds):
    mark_deleted(PODS, obj, grace, "", dependents=False)
    assert obj["metadata"]["deletionGracePeriodSeconds"] == seconds
    assert is_held(obj) is bool(seconds)


def test_a_second_deletion_can_only_shorten_the_time():
    obj = pod()
    mark_deleted(PODS, obj, 20, "", dependents=False)
    first = obj["metadata"]["deletionTimestamp"]
    for grace, seconds in ((40, 20), (5, 5), (None, 5)):
        mark_deleted(PODS, obj, grace, "", dependents=False)
        assert obj["metadata"]["deletionGracePeriodSeconds"] == seconds
    assert obj["metadata"]["deletionTimestamp"] == first


@pytest.mark.parametrize(
    ("resource", "propagation", "dependents", "finalizers"),
    [
        (CONFIG_MAPS, "", True, None),
        (CONFIG_MAPS, "Foreground", True, ["foregroundDeletion"]),
        (CONFIG_MAPS, "Foreground", False, None),
        (CONFIG_MAPS, "Orphan", True, ["orphan"]),
        # As the real API's, a Job's default.
        (JOBS, "", True, ["orphan"]),
        (JOBS, "Background", True, None),
    ],
)
def test_the_propagation_decides_what_happens_to_dependents(resource, propagation, dependents, finalizers):
    obj = {"metadata": {"name": "a"}}
    mark_deleted(resource, obj, None, propagation, dependents=dependents)
    assert obj["metadata"].get("finalizers") == finalizers
    assert is_held(obj) is bool(finalizers)


def test_other_finalizers_stay():
    obj = {"metadata": {"name": "a", "finalizers": ["mine", "orphan"]}}
    mark_deleted(CONFIG_MAPS, obj, None, "Foreground", dependents=True)
    assert obj["metadata"]["finalizers"] == ["mine", "foregroundDeletion"]
