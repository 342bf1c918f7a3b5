"""Values that a host writes and the notebook reads, without a host between the two."""

from __future__ import annotations

import collections
import datetime
import decimal
import json
import math
import pathlib
from typing import Any

import numpy as np
import pandas
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pathways_jupyter.colocated.errors import ColocatedError
from pathways_jupyter.colocated.remote import value_writer
from pathways_jupyter.colocated.value_reader import Reader


def back(value: Any) -> Any:
    """Return the notebook's form of a host's value."""
    writer = value_writer.Writer()
    written = json.loads(json.dumps(writer.write(value, "z")))
    return Reader("Output z", writer.parts).read(written)


KEYS = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5)
LEAVES = (
    KEYS
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.datetimes()
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(KEYS, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3).map(collections.OrderedDict)
    ),
    max_leaves=8,
)


@settings(suppress_health_check=list(HealthCheck))
@given(VALUES)
@example(datetime.datetime(2000, 1, 1, fold=1))
@example(datetime.time(1, fold=1))
def test_a_value_comes_back_as_it_was_with_its_type(value) -> None:
    found = back(value)
    assert found == value
    assert type(found) is type(value)
    assert repr(found) == repr(value) or isinstance(value, (set, list, tuple, dict))


@pytest.mark.parametrize(
    "value",
    [
        2**100_000,
        -(2**2000),
        math.inf,
        collections.Counter("aab"),
        collections.defaultdict(list, {"a": [1]}),
        pathlib.Path("/data/x"),
        frozenset({1}),
        bytearray(b"ab"),
        np.float32(0.1),
        np.datetime64("2026-01-01"),
        np.dtype("<f4"),
        decimal.Decimal("1.50"),
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_the_library_come_back(value) -> None:
    found = back(value)
    assert (found, type(found)) == (value, type(value))
    assert getattr(found, "default_factory", None) is getattr(value, "default_factory", None)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3)[:, ::2],
        np.zeros((0, 3), np.int8),
        np.array(["a", "bb"]),
        np.array(["a", "bb"], np.dtypes.StringDType()),
        np.array([None, {"a": 1}], object),
        np.array(7),
    ],
    ids=str,
)
def test_an_array_comes_back_with_its_shape_and_dtype(array) -> None:
    found = back(array)
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    assert found.tolist() == array.tolist()
    found.flags.writeable or pytest.fail("it cannot be changed")


def test_what_is_larger_than_the_limit_is_not_copied() -> None:
    writer = value_writer.Writer(limit=1000)
    with pytest.raises(value_writer.TooLargeError):
        writer.write([b"x" * 500, b"x" * 600], "z")
    assert sum(map(len, writer.parts)) <= 1000


@pytest.mark.parametrize(
    "value",
    [pandas.DataFrame({"a": [1]}), pandas.Timestamp("2026-01-01"), np.array([(1, 2.0)], [("n", "i4"), ("f", "f8")])],
    ids=lambda value: type(value).__name__,
)
def test_a_value_of_another_kind_is_refused_by_its_class_and_place(value) -> None:
    with pytest.raises(ColocatedError, match=rf"z\['t'\] is an object of class {type(value).__name__}") as refused:
        back({"t": value})
    assert "--unpickle" in refused.value.hint


@pytest.mark.parametrize(
    "written",
    [
        ["Decimal", [0, [1, 5], -1]],
        ["Decimal", 1.5],
        ["datetime", 20260101],
        ["Path", ["a", "b"]],
        ["int", 16],
        ["dtype", [["n", "<i4"]]],
        ["dtype", {"names": ["n"], "formats": ["<i4"]}],
        ["number", 5, 0],
    ],
    ids=str,
)
def test_what_a_host_writes_in_the_place_of_text_is_refused(written) -> None:
    """Some of these would be taken: Decimal reads a list of digits, and dtype a list of fields."""
    with pytest.raises(ColocatedError, match="Output z cannot be read here: ValueError: not text"):
        Reader("Output z", {0: b"\0" * 8}).read(written)
