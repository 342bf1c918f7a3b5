from __future__ import annotations

import numpy as np
import pandas
import pytest

from pathways_jupyter.colocated import trees

TABLE = pandas.DataFrame({"a": [1.0, np.nan]})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1, True),
        (1, 2, False),
        (float("nan"), float("nan"), True),
        (float("nan"), 1.0, False),
        (np.array([1, 2]), np.array([1, 2]), True),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.array([1]), [1], False),
        (TABLE, TABLE.copy(), True),
        (TABLE, TABLE + 1, False),
        ({"a": [1, None]}, {"a": [1, None]}, True),
        ({"a": [1, None]}, {"a": (1, None)}, False),
        ({1: 2, "a": 3}, {1: 2, "a": 3}, True),
        ({1: 2, "a": 3}, {1: 2, "a": 4}, False),
        (pandas.NaT, pandas.NaT, True),
    ],
)
def test_values_of_hosts_are_compared_as_far_as_that_can_be_known(one, other, same) -> None:
    assert trees.equal(one, other) is same


def test_one_value_is_what_all_hosts_have_and_others_are_listed_by_host() -> None:
    found = trees.once_or_per_host({"same": {0: [1], 2: [1]}, "own": {0: "a", 2: "b"}})
    assert found == {"same": [1], "own": {0: "a", 2: "b"}}
    assert repr(found["own"]) == "[host 0] 'a'\n[host 2] 'b'"


def test_arrays_inside_of_a_variable_are_named_by_their_place() -> None:
    import jax.numpy as jnp

    array = jnp.ones(2)
    found = trees.split({"x": array, "params": {"w": array, "n": [1, "a"]}, "text": "a"})
    assert sorted(found.arrays) == ["params['w']", "x"]
    assert found.values == {"text": "a"}
    _, leaves, places = found.trees["params"]
    assert (leaves, places) == ([1, "a", None], {2: "params['w']"})
