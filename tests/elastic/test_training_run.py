"""One run of the loop: it goes back to a snapshot when a slice is lost, and moves to the slice when it is back."""

from __future__ import annotations

import threading

from small_training import Data, check, first_state, step

from pathways_jupyter.elastic import faults
from pathways_jupyter.elastic.batches import Batches
from pathways_jupyter.elastic.compiled import CompiledSteps
from pathways_jupyter.elastic.loop import default_mesh
from pathways_jupyter.elastic.manager import Manager
from pathways_jupyter.elastic.record import Kind, Record
from pathways_jupyter.elastic.snapshots import Snapshots
from pathways_jupyter.elastic.training_run import TrainingRun

DEADLINE = 60.0


def test_a_run_shrinks_and_grows_with_its_slices(session, take_down):
    manager, record, data = Manager(settle_seconds=0.05), Record(), Data()
    is_down = threading.Event()
    manager.health.listeners.append(lambda index, up, sentence: up or is_down.set())

    def lose():
        take_down(1, seconds=600)
        assert is_down.wait(DEADLINE)

    def bring_back():
        faults.heal(session)
        assert manager.health.wait_for(3, timeout=DEADLINE) == {0, 1, 2}

    data.at = {12: lose, 20: bring_back}
    run = TrainingRun(
        batches=Batches(data),
        mesh_for=default_mesh,
        rule="keep",
        snapshot_every=5,
        minimum=1,
        snapshots=Snapshots(),
        manager=manager,
        precompile=False,
        record=record,
        timeout=DEADLINE,
        compiled=CompiledSteps(step),
        steps=30,
    )
    result = run.train(first_state())
    check(result, 30)
    kinds = [event.kind for event in record.events]
    assert kinds.index(Kind.SLICE_DOWN) < kinds.index(Kind.RESTORED) < kinds.index(Kind.RESUMED)
    assert kinds.index(Kind.RESUMED) < kinds.index(Kind.SLICE_UP) < kinds.index(Kind.GROWN)
    assert [count for _, count in record.slices] == [3, 2, 3]
    assert {device.slice_index for device in result.state["w"].devices()} == {0, 1, 2}
    assert not manager.health.is_watching, "it stops what it has started"
