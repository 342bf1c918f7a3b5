"""Copies that outlive the arrays they were made of, and how much memory they may take."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pathways_jupyter.elastic import snapshot
from pathways_jupyter.elastic.errors import ElasticRuntimeError
from pathways_jupyter.elastic.snapshots import Snapshots


def test_copies_are_on_the_same_devices_and_outlive_what_they_were_made_of(session):
    import jax

    (device, *_), (other, *_) = session.slices()[0], session.slices()[2]
    leaves = [jax.device_put(np.arange(4.0), device), np.arange(3), jax.device_put(np.arange(2), other)]
    assert snapshot.on_hosts([leaves[0], leaves[2]])
    copies = snapshot.copied(leaves)
    for leaf in (leaves[0], leaves[2]):
        leaf.delete()
    assert [np.asarray(copy).tolist() for copy in copies] == [[0, 1, 2, 3], [0, 1, 2], [0, 1]]
    assert [copies[place].devices() for place in (0, 2)] == [{device}, {other}]
    assert copies[0].sharding.memory_kind == "pinned_host"


def test_a_state_that_each_slice_has_is_kept_on_the_hosts(session):
    import jax

    devices = np.array([devices[0] for devices in session.slices().values()])
    sharding = jax.sharding.NamedSharding(jax.sharding.Mesh(devices, ("slice",)), jax.sharding.PartitionSpec())
    snapshots = Snapshots(outside_every=0)
    taken = snapshots.take(1, jax.device_put(np.arange(4.0), sharding))
    snapshots.wait()
    assert snapshots.latest() is taken
    assert (taken.tier, taken.arrays, taken.checkpoints, taken.error) == ("hosts", None, None, None)
    (pieces,) = taken.pieces
    for index in range(len(devices)):
        assert [np.asarray(piece).tolist() for piece in pieces.on({index})] == [[0, 1, 2, 3]]


def test_a_part_of_this_machines_memory_may_be_taken():
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    snapshots = Snapshots(where="notebook", keep=1)
    snapshots.check(np.zeros(4, np.uint8))
    # Two of them, which the machine could just hold.
    with pytest.raises(ElasticRuntimeError, match=r"Snapshots need .* GB of memory in this process"):
        snapshots.check(np.broadcast_to(np.uint8(0), machine // 2))
