from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathways_jupyter.local.apiserver.patch import merge_patch, strategic_patch

QUICK = settings(max_examples=60)

PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
JSON = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "containers", "env", "finalizers", "ports"]), JSON, max_size=4)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return value


@QUICK
@given(OBJECTS, OBJECTS)
def test_a_merge_patch_is_idempotent_and_leaves_its_target_alone(target, patch) -> None:
    before = json.dumps(target)

    once = merge_patch(target, patch)

    assert merge_patch(once, patch) == once
    assert json.dumps(target) == before


@QUICK
@given(OBJECTS)
def test_merging_an_object_into_nothing_gives_the_object(patch) -> None:
    assert merge_patch({}, patch) == without_nulls(patch)


@QUICK
@given(OBJECTS, OBJECTS)
def test_a_strategic_patch_either_applies_twice_alike_or_is_refused(target, patch) -> None:
    before = json.dumps(target)
    once = strategic_patch(target, patch)

    assert strategic_patch(once, patch) == once
    assert json.dumps(target) == before


CONTAINERS = {
    "containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]
}


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        ({"containers": [{"name": "b", "image": "2"}]}, ["a:1", "b:2"]),
        ({"containers": [{"name": "c", "image": "3"}]}, ["a:1", "b:1", "c:3"]),
        ({"containers": [{"name": "a", "$patch": "delete"}]}, ["b:1"]),
        ({"containers": [{"$patch": "replace"}, {"name": "z", "image": "9"}]}, ["z:9"]),
        (
            {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "a", "image": "2"}],
            },
            ["b:1", "a:2"],
        ),
        ({"containers": None}, []),
    ],
)
def test_containers_are_merged_by_name(patch, result) -> None:
    patched = strategic_patch(CONTAINERS, patch)

    assert [f"{each['name']}:{each['image']}" for each in patched.get("containers", [])] == result


def test_lists_inside_merged_elements_are_merged_too() -> None:
    patch = {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}

    first = strategic_patch(CONTAINERS, patch)["containers"][0]

    assert {each["name"]: each["value"] for each in first["env"]} == {"X": "1", "Y": "2"}
    assert first["image"] == "1"


def test_plain_values_are_added_to_and_taken_from_sets() -> None:
    assert strategic_patch({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}) == {"finalizers": ["a", "b"]}
    assert strategic_patch({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}) == {
        "finalizers": ["b"]
    }
    assert strategic_patch({"args": ["a"]}, {"args": ["b"]}) == {"args": ["b"]}


@pytest.mark.parametrize(
    ("elements", "merged"),
    [
        ([{"containerPort": 1}, {"containerPort": 2}], True),
        ([{"port": 1}, {"port": 2}], True),
        ([{"containerPort": 1}, {"port": 2}], False),
        ([{"containerPort": 1}, 2], False),
    ],
)
def test_a_list_is_merged_by_a_key_only_if_every_element_has_it(elements, merged: bool) -> None:
    patched = strategic_patch({"ports": elements[:1]}, {"ports": elements[1:]})

    assert patched == {"ports": elements if merged else elements[1:]}
