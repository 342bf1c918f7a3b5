"""A training run goes on through losses, and computes what an undisturbed one computes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from small_training import Data, Positioned, check, first_state, step

from pathways_jupyter import elastic
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.elastic import faults
from pathways_jupyter.elastic.record import Kind, Record
from pathways_jupyter.elastic.run_registry import RUNS
from pathways_jupyter.session.kernel import process


@pytest.mark.thorough
@pytest.mark.parametrize(("source", "where"), [(Data, "notebook"), (Positioned, "hosts")])
def test_a_run_that_loses_a_slice_continues_on_two(session, take_down, source, where):
    data, record = source(), Record()
    # In the middle between two snapshots.
    # Until it is healed below, so that it is not back before anything has noticed.
    data.at[27] = lambda: take_down(1, seconds=60, reported=True)
    manager = elastic.Manager(settle_seconds=0.05)
    result = elastic.train_loop(
        step,
        first_state(),
        data,
        steps=80,
        snapshots=elastic.Snapshots(where=where),
        manager=manager,
        record=record,
        precompile=True,
    )
    faults.heal(session)
    check(result, 80)
    kinds = [event.kind for event in record.events]
    assert kinds.index(Kind.DETECTED) < kinds.index(Kind.RESTORED) < kinds.index(Kind.RESUMED)
    restored = next(event for event in record.events if event.kind is Kind.RESTORED)
    assert 0 <= restored.data["repeated"] <= 20
    assert set(restored.slices) == {0, 2}
    assert manager.elastic_down_event_count >= 1


def test_with_too_few_slices_a_run_pauses_and_says_so(session, take_down, caplog, monkeypatch):
    data, record = Data(), Record()
    data.at[15] = lambda: take_down(2, seconds=60, reported=True)
    monkeypatch.setattr(RUNS, "_observer", lambda run, _: run.phase == "waiting" and faults.heal(session))
    result = elastic.train_loop(
        step,
        first_state(),
        data,
        steps=30,
        minimum_slices=3,
        manager=elastic.Manager(settle_seconds=0.05),
        record=record,
    )
    check(result, 30)
    paused = next(event for event in record.events if event.kind is Kind.WAITING)
    assert "2 of at least 3 slices" in paused.message
    # As a warning, which a cell shows without the panel too.
    assert paused.message in [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert result.goodput.seconds()["ELASTIC_SLICE_DOWN"] > 0


def test_with_slices_whose_chips_cannot_divide_a_batch_a_run_pauses_and_has_said_so(session, take_down, monkeypatch):
    """Twelve rows: one to each chip of three slices, three to each of one, and none fits eight chips."""
    data, record = Data(rows=12), Record()
    data.at[15] = lambda: take_down(2, seconds=60, reported=True)
    monkeypatch.setattr(RUNS, "_observer", lambda run, _: run.phase == "waiting" and faults.heal(session))
    manager = elastic.Manager(settle_seconds=0.05)
    result = elastic.train_loop(step, first_state(), data, steps=30, manager=manager, record=record)
    check(result, 30, rows=12)
    said = [event.message for event in record.events]
    assert "The run pauses with 2 slices: they cannot divide a batch of 12 rows." in said
    assert "Training pauses: 2 of at least 3 slices are up." in said
    assert said.index("The run pauses with 2 slices: they cannot divide a batch of 12 rows.") == 0
    with pytest.raises(elastic.ElasticRuntimeError, match="A batch of 16 rows cannot be divided into 12 p") as refused:
        elastic.train_loop(step, first_state(), Data(rows=16), steps=30, manager=manager)
    assert "a multiple of 12." in refused.value.hint


@pytest.mark.thorough
def test_batches_that_were_on_a_lost_slice_are_named_and_not_tried_again_and_again(session, take_down):
    import jax

    data, snapshots = Data(), elastic.Snapshots()
    everywhere = jax.sharding.NamedSharding(jax.sharding.Mesh(session.devices(), "x"), jax.P("x"))
    data.at[27] = lambda: take_down(1, seconds=60, reported=True)
    placed = (jax.device_put(batch, everywhere) for batch in data)
    with pytest.raises(elastic.ElasticRuntimeError, match=r"Batch 2\d, .* went with the slice") as said:
        elastic.train_loop(step, first_state(), placed, steps=60, snapshots=snapshots)
    assert "NumPy arrays" in said.value.hint
    faults.heal(session)
    # As the hint says.
    latest = snapshots.latest()
    assert latest is not None
    check(elastic.train_loop(step, first_state(), Data(), steps=60, snapshots=snapshots), 60, since=latest.step)


def test_snapshots_of_another_state_or_of_a_run_that_goes_on_are_refused_before_the_first_step(session):
    snapshots, data = elastic.Snapshots(), Data()
    second = []

    def run_beside():
        with pytest.raises(ConfigError, match="a run that goes on has these snapshots") as refused:
            elastic.train_loop(step, first_state(), data, steps=20, snapshots=snapshots)
        second.append(refused.value)

    data.at[7] = run_beside
    check(elastic.train_loop(step, first_state(), data, steps=12, snapshots=snapshots), 12)
    assert "snapshots of its own" in second[0].hint
    wider = first_state() | {"w": np.zeros((32, 4), np.float32)}
    differing = (({"model": first_state()}, r"state\['key'\] is only there"), (wider, r"\(16, 4\) there and \(32,"))
    for state, said in differing:
        # Also where nothing would be left to do.
        for steps in (5, 20):
            with pytest.raises(elastic.ElasticRuntimeError, match=said):
                elastic.train_loop(step, state, data, steps=steps, snapshots=snapshots)
    # Its own state, of which nothing but the form is needed.
    check(elastic.train_loop(step, first_state(), data, steps=20, snapshots=snapshots), 20, since=12)


def test_a_worker_that_is_back_before_the_run_asks_was_lost_all_the_same(session, take_down_and_up, monkeypatch):
    """As in a job, where no events say so: a step runs on what is left, and then the slice is used again."""
    monkeypatch.setattr(process, "session", lambda: None)
    data, manager, record = Data(), elastic.Manager(settle_seconds=0.05), Record()
    data.at[13] = lambda: take_down_and_up(1)
    # No probe comes between.
    manager.start_monitoring(poll_interval=3600)
    try:
        check(elastic.train_loop(step, first_state(), data, steps=60, manager=manager, record=record), 60)
    finally:
        manager.close()
    counts = [slices for _, slices in record.slices]
    assert [count for count, _ in itertools.groupby(counts)] == [3, 2, 3]
    assert manager.elastic_down_event_count == 1


@pytest.mark.soak
def test_two_slices_at_once(session, take_down):
    data = Data()

    def both():
        take_down(0, reported=True)
        take_down(2, reported=True)

    data.at[13] = both
    check(elastic.train_loop(step, first_state(), data, steps=40), 40)


@pytest.mark.thorough
def test_the_batch_follows_the_slices_and_no_row_is_lost_or_used_twice(session, take_down):
    """Each row counts itself: the sum of all rows that were used says whether one was lost."""
    import jax.numpy as jnp

    rows = iter(np.arange(1, 24 * 100 + 1, dtype=np.float32).reshape(100, 24, 1))

    def count(state, batch):
        return {"sum": state["sum"] + batch.sum(), "rows": state["rows"] + batch.shape[0]}, {
            "rows": jnp.float32(batch.shape[0])
        }

    def source():
        for number, batch in enumerate(rows):
            if number == 12:
                take_down(1, seconds=60, reported=True)
            yield batch

    result = elastic.train_loop(
        count, {"sum": np.float32(0), "rows": np.int32(0)}, source(), steps=30, batch="scale", snapshot_every=5
    )
    faults.heal(session)
    used = int(np.asarray(result.state["rows"]))
    assert float(np.asarray(result.state["sum"])) == used * (used + 1) / 2
    assert {int(each["rows"]) for each in result.metrics.values()} == {24, 16}
