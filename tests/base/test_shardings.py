"""A sharding is the same after it was written as JSON and read again."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from pathways_jupyter.base import shardings


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
