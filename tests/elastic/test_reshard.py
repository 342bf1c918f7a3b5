"""Arrays on another mesh, of the pieces that can still be read."""

from __future__ import annotations

import numpy as np
import pytest

from pathways_jupyter import elastic
from pathways_jupyter.elastic import reshard
from pathways_jupyter.elastic.loop import default_mesh
from pathways_jupyter.elastic.reshard import Form, Pieces


@pytest.fixture
def mesh(session):
    """A mesh of these slices."""
    devices = session.slices()
    return lambda slices: default_mesh([devices[index] for index in slices])


def put(mesh, *spec):
    import jax

    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
    return jax.device_put(np.arange(48, dtype=np.float32).reshape(12, 4), sharding)


@pytest.mark.thorough
def test_what_is_replicated_over_slices_survives_one_and_what_is_sharded_does_not(mesh):
    three, two = mesh([0, 1, 2]), mesh([0, 2])
    replicated, sharded = put(three, None, "chip"), put(three, "slice", "chip")
    assert reshard.spare_copies(replicated) == 2
    assert reshard.spare_copies([replicated, sharded]) == 0
    state = {"w": replicated}
    moved = reshard.moved(state, reshard.shardings_on(state, two), usable={0, 2})
    assert {device.slice_index for device in moved["w"].devices()} == {0, 2}
    assert np.asarray(moved["w"]).tolist() == np.asarray(replicated).tolist()
    with pytest.raises(elastic.ElasticRuntimeError, match="pieces on lost slices only"):
        reshard.moved(sharded, reshard.shardings_on(sharded, two), usable={0, 2})


def test_pieces_are_kept_where_they_are_and_sent_where_they_are_missing(mesh):
    array = put(mesh([0]), None, "chip")
    pieces = Pieces.of(array)
    larger = reshard.shardings_on(array, mesh([0, 1]))
    moved = reshard.moved(pieces, larger, usable={0})
    assert moved.sharding == larger
    # Each device's part is one of the pieces, or a copy of one.
    for shard in moved.addressable_shards:
        assert np.asarray(shard.data).tolist() == np.asarray(array)[shard.index].tolist()
    assert len(pieces.on({0})) == 4
    assert pieces.on({1}) == []


def test_a_partition_that_no_piece_fits_is_made_in_the_notebook(mesh):
    import jax

    three = mesh([0, 1, 2])
    columns, rows = put(three, None, "chip"), jax.sharding.NamedSharding(three, jax.sharding.PartitionSpec("slice"))
    moved = reshard.moved(columns, rows, usable={0, 1, 2})
    assert moved.sharding == rows
    assert np.asarray(moved).tolist() == np.asarray(columns).tolist()


def test_a_form_is_all_of_a_state_but_its_numbers(mesh):
    import jax

    two = mesh([0, 1])
    state = {"key": jax.random.key(7), "n": np.int32(3), "w": put(two, "slice", "chip")}
    form, leaves = Form.of(state)
    assert form.nbytes == 8 + 4 + 48 * 4
    assert form.specs[:2] == (jax.sharding.PartitionSpec(),) * 2
    assert form.shardings(two)[2] == state["w"].sharding
    again = form.whole([np.asarray(leaf) for leaf in leaves])
    assert jax.random.uniform(again["key"]) == jax.random.uniform(state["key"])
    assert again["n"] == 3


def test_weak_types_and_kinds_of_memory_are_kept(mesh):
    import jax
    import jax.numpy as jnp

    three, two = mesh([0, 1, 2]), mesh([0, 2])
    whole = jax.sharding.NamedSharding(three, jax.sharding.PartitionSpec())
    state = {
        "lr": jax.device_put(jnp.asarray(0.5), whole),
        "rate": 0.25,
        "slow": jax.device_put(put(three, None, "chip"), whole.update(memory_kind="pinned_host")),
        "w": put(three, None, "chip"),
    }

    def kinds(tree):
        return {name: (each.aval.weak_type, each.sharding.memory_kind) for name, each in tree.items()}

    expected = {"lr": (True, "device"), "slow": (False, "pinned_host"), "w": (False, "device")}
    of_arrays = {name: each for name, each in state.items() if name != "rate"}
    moved = reshard.moved(of_arrays, reshard.shardings_on(of_arrays, two), usable={0, 2})
    assert kinds(moved) == expected
    rows = jax.sharding.NamedSharding(two, jax.sharding.PartitionSpec())
    assert reshard.moved(Pieces.of(state["lr"]), rows, usable={0, 2}).aval.weak_type
    form, leaves = Form.of(state)
    again = form.whole(jax.device_put(leaves, form.shardings(two)))
    assert kinds(again) == {**expected, "rate": (True, "device")}
    assert (jnp.ones(3, jnp.bfloat16) * jax.device_put(again["rate"], jax.devices()[0])).dtype == jnp.bfloat16
