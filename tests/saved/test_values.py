"""Variables become JSON values and are made of them again, with CPU arrays and no cluster."""

from __future__ import annotations

import io
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pathways_jupyter.saved.values import UnsavableError, VariableReader, VariableWriter


class Pair(NamedTuple):
    first: Any
    second: Any


def again(**variables):
    writer = VariableWriter(lambda array: array.shape)
    nodes = {name: writer.write(name, value) for name, value in variables.items()}
    reader = VariableReader(writer.arrays)
    return {name: reader.read(node) for name, node in json.loads(json.dumps(nodes)).items()}


@pytest.mark.parametrize(
    "value",
    [None, True, 2**70, 0.1, "a\u00fc\ud800", b"\0\xff", 1 - 2j, [1, (2, [3])], {1: "a", (1, "b"): {None: 2}}, {1, 2}],
)
def test_plain_values_come_back(value):
    found = again(x=value)["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", [np.arange(6, dtype="int16").reshape(2, 3), np.float32(0.1), np.zeros((0, 2))])
def test_numpy_values_come_back(value):
    found = again(x=value)["x"]
    assert type(found) is type(value)
    assert found.dtype == value.dtype
    np.testing.assert_array_equal(found, value)


def test_aliases_stay_aliases():
    array, shared = jnp.ones(3), [1]
    found = again(a=array, b={"w": array, "s": shared}, c=(shared, array))
    assert found["a"] is found["b"]["w"] is found["c"][1]
    assert found["b"]["s"] is found["c"][0]


def test_a_list_may_hold_itself():
    cycle: list[Any] = [1]
    cycle.append({"back": (cycle,)})
    found = again(x=cycle)["x"]
    assert found[1]["back"][0] is found


def test_a_class_of_its_own_comes_back_as_its_leaves():
    array = jnp.ones(3)
    assert again(x=Pair(array, {"n": 2}))["x"] == {".first": array, ".second['n']": 2}


def test_what_cannot_be_kept_is_named_and_leaves_nothing():
    writer = VariableWriter(lambda array: array.shape)
    with pytest.raises(UnsavableError, match=r"x\[1\]\['f'\] is a _io.StringIO"):
        writer.write("x", [jnp.ones(2), {"f": io.StringIO()}])
    assert not writer.arrays
    assert not writer.described
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UnsavableError, match="too deep"):
        writer.write("x", deep)
    assert not writer.arrays
    assert writer.write("y", [1])["id"] == 0


@pytest.mark.parametrize(
    "node",
    [
        {"array": 0},
        {"array": -1},
        {"same": 3},
        {"object": []},
        {"tuple": [1]},
        {"numpy": "AAAA", "dtype": "object", "shape": [1], "scalar": False, "id": 0},
        {"numpy": "AAAA", "dtype": "int8", "shape": [1 << 60], "scalar": False, "id": 0},
        {"list": 3, "id": 0},
        {"dict": [[{"list": [], "id": 0}, 1]], "id": 1},
        [],
    ],
)
def test_a_hostile_description_is_an_error(node):
    with pytest.raises((LookupError, TypeError, ValueError)):
        VariableReader([]).read(node)


def test_arrays_are_not_copied():
    array = jnp.arange(3)
    assert again(x=[array])["x"][0] is array
    assert isinstance(array, jax.Array)
