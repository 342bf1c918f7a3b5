from __future__ import annotations

import jax
import numpy as np
import pytest

from pathways_jupyter.colocated.remote import outputs
from pathways_jupyter.colocated.remote.value_writer import Writer


@pytest.mark.parametrize(
    ("array", "wide"),
    [
        (np.array([2**31 - 1, -(2**31)]), False),
        (np.array([2**31]), True),
        (np.array([-(2**31) - 1]), True),
        (np.array([2**32 - 1], np.uint64), False),
        (np.array([2**32], np.uint64), True),
        (np.array([], np.int64), False),
        (np.array([0.1, np.inf, np.nan]), False),
        (np.array([1e300]), True),
        (np.array([1e300j]), True),
        (np.array([2**31 - 1], np.int32), False),
    ],
)
def test_what_32_bits_cannot_hold_is_wide_and_rounding_is_not(array, wide) -> None:
    assert outputs.is_wide(array) is wide


def test_a_variable_is_an_array_or_a_value_that_may_hold_arrays() -> None:
    names = {"n": 1, "a": np.ones(2), "d": {"b": np.ones(1), "a": np.ones(3), "t": "x"}, "t": "text", "o": object}
    writer = Writer(outputs.is_array)
    found, written = outputs.split(["n", "a", "d", "t"], names, writer)
    assert list(found) == ["n", "a", "d['a']", "d['b']"]
    assert sorted(written) == ["d", "t"]
    with pytest.raises(NameError, match="--out names z, which this cell did not define"):
        outputs.split(["z"], names, writer)


def test_what_a_call_keeps_is_taken_once_and_only_the_latest_calls_keep_anything() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("x",))
    target = ((2,), np.float32, jax.sharding.NamedSharding(mesh, jax.P("x")))
    (spec,) = outputs.keep("first", {"z": np.ones(2, np.float32)}, mesh, ())
    assert (spec["name"], spec["shape"], spec["dtype"], spec["local"]) == ("z", [2], "float32", True)
    (taken,) = outputs.take("first", ["z"], [target])
    assert taken.tolist() == [1, 1]
    with pytest.raises(KeyError):
        outputs.take("first", ["z"], [target])
    for number in range(40):
        outputs.keep(f"call {number}", {"z": np.ones(2)}, mesh, ())
    with pytest.raises(KeyError):
        outputs.take("call 0", ["z"], [target])
