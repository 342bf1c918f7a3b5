"""Indexes of saves are input: each is one that was written, or one error."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.text import without_infinity
from pathways_jupyter.saved.index import UNREADABLE, Index
from pathways_jupyter.saved.resize import Resize

HUGE = int("1" + "0" * 400)
GOOD = {
    "format": 1,
    "content": "0" * 32,
    "saved": 1_796_000_000.5,
    "notebook": "work/a.ipynb",
    "variables": {"x": {"array": 0}},
    "arrays": [{"shape": [3]}],
    "files": {"0/0": [12, "sum"]},
}
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just(HUGE), st.just(-1)),
    lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(st.text(max_size=3), inside, max_size=3)),
    max_leaves=8,
)


def encoded(**changes):
    return json.dumps({**GOOD, **changes}).encode()


def test_an_index_is_read_as_it_was_written():
    index = Index.parse("x", encoded())
    assert Index.parse("x", index.encode()) == index
    assert index.nbytes == 12


@pytest.mark.parametrize(
    "changes",
    [
        {"saved": HUGE},
        {"saved": float("inf")},
        {"saved": float("nan")},
        {"saved": -1},
        {"saved": True},
        {"format": HUGE},
        {"format": "1"},
        {"format": True},
        {"files": {"a": [float("inf"), "x"]}},
        {"files": {"a": [HUGE, "x"]}},
        {"files": {"a": [1]}},
        {"files": {"a": 7}},
        {"content": "../../other"},
        {"notebook": "x" * 100_000},
        {"notebook": 3},
        {"variables": {"a b": 1}},
        {"variables": {"class": 1}},
        {"variables": {"": 1}},
        {"arrays": [{}] * 100_001},
    ],
)
def test_what_no_save_writes_is_damage(changes):
    with pytest.raises(PathwaysError, match=r"^x (is damaged: its index cannot be read|was saved in format unknown)"):
        Index.parse("x", encoded(**changes))


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), VALUES))
@example({"files": {"a": [HUGE, "x"]}})
@settings(max_examples=500, deadline=None)
def test_any_index_is_one_or_an_error(changes):
    try:
        index = Index.parse("x", encoded(**changes))
    except PathwaysError:
        return
    # What is listed of it, as a browser reads JSON.
    shown = {"nbytes": index.nbytes, "saved": index.saved, "notebook": index.notebook}
    assert without_infinity(shown) == shown


@given(st.one_of(st.binary(), VALUES.map(lambda value: json.dumps(value).encode()), st.just(b"[" * 100_000)))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_an_index_or_an_error(data):
    with pytest.raises(PathwaysError, match=r"^x (is damaged|was saved in format \w+)"):
        Index.parse("x", data)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("shape", "sharding", "dtype"), VALUES)))
@settings(max_examples=200, deadline=None)
def test_any_description_of_an_array_is_moved_or_an_error(described):
    with contextlib.suppress(*UNREADABLE):
        Resize(2, 1, 4).described(described)
