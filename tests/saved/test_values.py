"""Variables become JSON values and are made of them again, with CPU arrays and no cluster."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathways_jupyter.saved.index import UNREADABLE
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
    assert found["a"] is found["b"]["w"] is found["c"][1] is array, "no array is copied"
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
        {},
        {"list": [{"list": [], "id": 0}], "id": 0},
        {"tuple": [], "dict": [], "id": 0},
        {"numpy": "AAAA", "dtype": [["a", "i1"], ["b", "i2"]], "shape": [1], "scalar": False, "id": 0},
    ],
)
def test_a_hostile_description_is_an_error(node):
    with pytest.raises((LookupError, TypeError, ValueError)):
        VariableReader([]).read(node)


def bomb(levels, last):
    """A description of few bytes of a value with 2 to the power of `levels` values in it, and `last` behind it."""
    nodes = [{"tuple": [1, 2], "id": 0}]
    nodes += [{"tuple": [{"same": level - 1}, {"same": level - 1}], "id": level} for level in range(1, levels)]
    return {"list": [*nodes, *last], "id": levels}


@pytest.mark.parametrize(
    "last", [{"set": [{"same": 19}]}, {"frozenset": [{"same": 19}]}, {"dict": [[{"same": 19}, 1]]}]
)
def test_a_key_is_no_more_work_than_it_looks(last):
    with pytest.raises(ValueError, match="a key, or a member of a set, that is too large"):
        VariableReader([]).read(bomb(20, [{**last, "id": 99}]))


def test_a_value_is_no_more_work_than_it_looks():
    with pytest.raises(ValueError, match="is too large"):
        VariableReader([]).read(bomb(60, []))


def test_keys_of_one_hash_are_few():
    # Python's hash of an integer is its rest by this number.
    collide = [number * (2**61 - 1) for number in range(1000)]
    with pytest.raises(ValueError, match="keys of the same hash"):
        VariableReader([]).read({"set": collide, "id": 0})


def test_what_could_not_be_read_is_not_written():
    key: Any = (1, 2)
    for _ in range(20):
        key = (key, key)
    writer = VariableWriter(lambda array: array.shape)
    with pytest.raises(UnsavableError, match=r"x has a key, or a member of a set, that is too large\."):
        writer.write("x", {key: 1})
    assert again(y=key)["y"] == key
    assert VariableReader([]).read(writer.write("y", (1, [2]))) == (1, [2])


def nodes(numbers):
    """Descriptions, mostly of values, with numbers that may have been used before."""
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.builds(lambda number: {"same": number}, numbers),
        st.builds(lambda number: {"array": number}, numbers),
        st.fixed_dictionaries({"complex": st.lists(st.floats(), max_size=3)}),
        st.fixed_dictionaries({"bytes": st.text(max_size=8)}),
        st.fixed_dictionaries(
            {
                "numpy": st.text(alphabet="AB=", max_size=8),
                "dtype": st.sampled_from(["int8", "float64", "object", "S5", "i4,i4", 3, None]),
                "shape": st.lists(st.integers(-1, 1 << 60), max_size=2),
                "scalar": st.booleans(),
                "id": numbers,
            }
        ),
    )

    def around(inside):
        kinds = st.sampled_from(["list", "tuple", "set", "frozenset"])
        pairs = st.lists(st.lists(inside, min_size=2, max_size=2), max_size=4)
        return st.one_of(
            st.builds(lambda kind, each, n: {kind: each, "id": n}, kinds, st.lists(inside, max_size=4), numbers),
            st.builds(lambda each, n: {"dict": each, "id": n}, pairs, numbers),
            st.dictionaries(st.sampled_from(["list", "tuple", "dict", "set", "id", "same", "x"]), inside, max_size=3),
        )

    return st.recursive(leaves, around, max_leaves=20)


@given(st.lists(nodes(st.integers(0, 12)), max_size=6))
@settings(max_examples=400, deadline=None)
def test_any_description_is_a_value_or_an_error(descriptions):
    reader = VariableReader([jnp.arange(3)])
    for each in descriptions:
        with contextlib.suppress(*UNREADABLE):
            reader.read(each)
