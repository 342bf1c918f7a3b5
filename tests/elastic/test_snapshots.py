"""Copies of a state that are left; what training does with them is in test_loop.py and test_proxy_lost.py."""

from types import SimpleNamespace
from typing import Any, cast

from pathways_jupyter.elastic.snapshot import Form, Snapshot
from pathways_jupyter.elastic.snapshots import Snapshots

FORM = cast("Form", SimpleNamespace())


def kept(snapshots: Snapshots, step: int, **copies: Any) -> Snapshot:
    snapshot = Snapshot(step, FORM, None, "hosts", **copies)
    snapshots._whole.append(snapshot)
    return snapshot


def test_a_lost_proxy_takes_the_snapshots_that_were_only_on_its_hosts():
    snapshots = Snapshots()
    kept(snapshots, 1, pieces=[object()])
    in_notebook = kept(snapshots, 2, pieces=[object()], arrays=[object()])
    kept(snapshots, 3, pieces=[object()])
    snapshots.forget_hosts()
    # The oldest is what the data iterator must be able to go back to.
    assert snapshots.oldest() is in_notebook
    assert in_notebook.pieces is None
    snapshots.drop(in_notebook)
    assert snapshots.oldest() is None
