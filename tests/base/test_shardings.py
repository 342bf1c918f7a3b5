"""A sharding is the same after it was written as JSON and read again."""

from __future__ import annotations

import contextlib
import json

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pathways_jupyter.base import shardings

VALUES = st.recursive(
    st.one_of(st.none(), st.integers(-3, 9), st.just(1 << 70), st.floats(), st.text(max_size=4)),
    lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(st.text(max_size=2), inside, max_size=2)),
    max_leaves=5,
)
GOOD = {"devices": [0], "shape": [1, 1], "axes": ["a", "b"], "types": ["Auto"] * 2, "spec": ["a"], "memory": None}


def test_it_comes_back_as_it_was() -> None:
    device = jax.devices("cpu")[0]
    mesh = jax.sharding.Mesh(np.array([[device]]), ("x", "y"))
    for sharding in (
        jax.sharding.SingleDeviceSharding(device),
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(("x", "y"), None)),
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()),
    ):
        written = json.loads(json.dumps(shardings.write(sharding, lambda device: 7)))
        assert shardings.read(written, {7: device}) == sharding


def test_a_device_that_it_may_not_name_is_refused() -> None:
    written = shardings.write(jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0]), lambda device: 7)
    with pytest.raises(LookupError):
        shardings.read(written, {0: None})


def test_a_sharding_without_devices_is_refused() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("x",))
    sharding = jax.sharding.NamedSharding(mesh.abstract_mesh, jax.sharding.PartitionSpec())
    with pytest.raises(TypeError, match="give it a NamedSharding"):
        shardings.write(sharding, lambda device: 7)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(GOOD, VALUES)), st.sets(st.sampled_from(sorted(GOOD))))
@example({"devices": [], "shape": [0, 1], "memory": "device"}, set())
@example({"devices": [0, 0], "shape": [2, 1]}, set())
@example({"memory": 5}, set())
@example({"memory": 5}, {"axes"})
@example({"spec": ["a", "a"]}, set())
@settings(max_examples=300, deadline=None)
def test_what_is_no_sharding_is_an_error_and_does_not_end_the_process(changes, left_out) -> None:
    written = {name: value for name, value in {**GOOD, **changes}.items() if name not in left_out}
    with contextlib.suppress(LookupError, TypeError, ValueError):
        shardings.read(written, {0: jax.devices("cpu")[0]})
