"""A training run that loses no slice: its end, its errors, its log, and going on after an Interrupt."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from small_training import Data, Positioned, check, first_state, step

from pathways_jupyter import elastic
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.elastic import recovery
from pathways_jupyter.elastic.record import Record
from pathways_jupyter.elastic.run_registry import RUNS


@pytest.mark.parametrize("fresh", [True, False])
def test_an_interrupted_run_resumes_from_its_snapshots(session, fresh):
    """With the iterator that it had, which is past the snapshot, or with one that begins anew."""
    snapshots, data = elastic.Snapshots(), Data()

    def interrupt():
        raise KeyboardInterrupt

    data.at[33] = interrupt
    with pytest.raises(KeyboardInterrupt):
        elastic.train_loop(step, first_state(), data, steps=60, snapshots=snapshots)
    latest = snapshots.latest()
    assert latest is not None
    assert latest.step >= 20
    again = Data() if fresh else data
    result = elastic.train_loop(step, first_state(), again, steps=60, snapshots=snapshots)
    check(result, 60, since=latest.step)


def test_a_run_ends_when_its_data_end(session):
    result = elastic.train_loop(step, first_state(), itertools.islice(Data(), 7), steps=100)
    check(result, 7)
    assert result.record.phase == "done"
    assert repr(result) == f"<Result of 7 steps, loss {result.metrics[6]['loss']:.6g}, n 6>"


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_whose_generator_was_interrupted_is_not_done(session, kept):
    """With the snapshots of the first run, and without: then the generator is one that is over from the beginning."""
    data, snapshots = Data(), elastic.Snapshots() if kept else None

    def interrupt():
        raise KeyboardInterrupt

    data.at[14] = interrupt
    generator = (batch for batch in data)
    with pytest.raises(KeyboardInterrupt):
        elastic.train_loop(step, first_state(), generator, steps=30, snapshots=snapshots)
    record = Record()
    said = "ended by KeyboardInterrupt while it made batch 14" if kept else "have no batch: their iterator has ended"
    with pytest.raises(elastic.ElasticRuntimeError, match=said):
        elastic.train_loop(step, first_state(), generator, steps=30, snapshots=snapshots, record=record)
    assert (record.phase, record.total_steps) == ("stopped", 30)
    if snapshots is not None:
        # What the error says to do.
        latest = snapshots.latest()
        assert latest is not None
        again = (batch for batch in Data())
        result = elastic.train_loop(step, first_state(), again, steps=30, snapshots=snapshots)
        check(result, 30, since=latest.step)


def test_a_run_whose_generator_was_ended_by_a_loss_says_so(session):
    """The run itself could go on after that."""
    import jax

    def lost():
        raise jax.errors.JaxRuntimeError("DATA_LOSS: a batch that was computed on a slice")

    data, record = Data(), Record()
    data.at[3] = lost
    with pytest.raises(elastic.ElasticRuntimeError, match="ended by JaxRuntimeError while it made batch 3"):
        elastic.train_loop(step, first_state(), (batch for batch in data), steps=9, record=record)
    assert (record.phase, record.total_steps) == ("stopped", 9)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"batch": "foo"}, "batch must be one of 'keep', 'scale', not 'foo'"),
        ({"steps": -1}, "steps must be a whole number of at least 0, not -1"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"steps": True}, "steps must be a whole number of at least 0, not True"),
        ({"snapshot_every": 0}, "snapshot_every must be a whole number of at least 1, not 0"),
        ({"minimum_slices": -1}, "minimum_slices must be a whole number of at least 0, not -1"),
        ({"minimum_slices": 5}, "minimum_slices is 5, but there are 3 slices in all"),
        ({"timeout": -1}, "timeout must be a number of seconds, at least 0, not -1"),
        ({"timeout": "10"}, "timeout must be a number of seconds, at least 0, not '10'"),
        ({"timeout": float("nan")}, "timeout must be a number of seconds, at least 0, not nan"),
        ({"mesh_for": 3}, "mesh_for must be a function, not int"),
        ({"snapshots": "gs://runs"}, "snapshots must be of type Snapshots, not str"),
        ({"manager": 1}, "manager must be of type Manager, not int"),
        ({"record": 1}, "record must be of type Record, not int"),
        ({"data": 7}, "data must be of type Iterable, not int"),
        ({"step": None}, "step must be a function, not NoneType"),
    ],
)
def test_an_argument_that_cannot_be_used_is_refused_before_anything_is_changed(session, wrong, said):
    latest, data = RUNS.latest, Data()
    arguments = {"step": step, "state": first_state(), "data": data, "steps": 3, "snapshots": elastic.Snapshots()}
    with pytest.raises(ConfigError, match=said) as refused:
        elastic.train_loop(**(arguments | wrong))
    assert refused.value.hint
    assert data.number == 0
    assert RUNS.latest is latest, "no run has begun"


def test_more_slices_than_a_manager_has_are_refused(session):
    one = elastic.Manager(session.slices()[2])
    with pytest.raises(ConfigError, match="minimum_slices is 2, but there is 1 slice in all"):
        elastic.train_loop(step, first_state(), Data(), steps=3, minimum_slices=2, manager=one)


def count_rows(state, batch):
    return state + batch.shape[0], {"rows": np.float32(batch.shape[0])}


def test_a_batch_that_cannot_be_scaled_is_refused_at_the_first_one_and_not_at_a_loss(session):
    """It is on all slices as a whole, so that nothing else needs its rows to be a multiple of anything."""
    import jax

    data = iter(np.zeros((30, 16, 2), np.float32))
    arguments = {"steps": 3, "batch_spec": jax.P(), "snapshots": elastic.Snapshots()}
    said = "A batch of 16 rows cannot be scaled with 3 slices: 16 is no multiple of 3."
    with pytest.raises(elastic.ElasticRuntimeError, match=said) as refused:
        elastic.train_loop(count_rows, np.float32(0), data, batch="scale", **arguments)
    assert "batches of 18 rows, or another multiple of 3" in refused.value.hint
    # What the hint says. And a run that pauses for all slices never has to divide a batch.
    for fitting in ({"batch": "keep"}, {"batch": "scale", "minimum_slices": 3}):
        result = elastic.train_loop(count_rows, np.float32(0), data, **fitting, **arguments | {"snapshots": None})
        assert float(np.asarray(result.state)) == 48
    multiple = iter(np.zeros((3, 18, 2), np.float32))
    result = elastic.train_loop(count_rows, np.float32(0), multiple, batch="scale", **arguments | {"snapshots": None})
    assert float(np.asarray(result.state)) == 54


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"keep": 0}, "keep must be a whole number of at least 1, not 0"),
        ({"where": "host"}, "where must be one of 'auto', 'hosts', 'notebook', not 'host'"),
        ({"limit_bytes": -1}, "limit_bytes must be"),
        ({"outside_every": -1}, "outside_every must be"),
        ({"outside_every": 0, "path": "/nowhere"}, "outside_every must be a whole number of at least 1"),
    ],
)
def test_snapshots_that_cannot_be_taken_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        elastic.Snapshots(**wrong)


def test_an_error_that_comes_again_and_again_is_raised(session, monkeypatch):
    """Though it looks like the loss of a slice, nothing is lost."""
    import jax

    monkeypatch.setattr(recovery, "_LONGEST_PAUSE_SECONDS", 0.01)

    class Broken(Positioned):
        def __next__(self):
            if self.number == 3:
                raise jax.errors.JaxRuntimeError("INTERNAL: mine")
            return super().__next__()

    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL: mine"):
        elastic.train_loop(step, first_state(), Broken(), steps=10)


def test_a_state_without_room_for_its_snapshots_is_refused_before_anything_starts(session):
    with pytest.raises(elastic.ElasticRuntimeError, match=r"need 0\.0\d GB .* may take 0\.00 GB"):
        elastic.train_loop(
            step,
            {**first_state(), "large": np.zeros(1_000_000, np.float32)},
            Data(),
            steps=1,
            snapshots=elastic.Snapshots(where="notebook", limit_bytes=1000),
        )


def test_the_log_has_the_lines_that_scripts_read(session, caplog):
    with caplog.at_level("INFO", logger="pathways_jupyter.elastic"):
        elastic.train_loop(step, first_state(), Data(), steps=3)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("step=")]
    assert lines[0].startswith(
        "step=0 elastic_manager.elastic_down_event_count=0 elastic_manager.good_slice_count=3 loss="
    )


def test_a_run_that_fails_with_the_record_of_an_earlier_one_is_not_done(session):
    def wrong(state, batch):
        raise ValueError("mine")

    record = Record()
    elastic.train_loop(step, first_state(), Data(), steps=3, record=record)
    assert (record.phase, record.summary()["step"]) == ("done", 3)
    with pytest.raises(ValueError, match="mine"):
        elastic.train_loop(wrong, first_state(), Data(), steps=3, record=record)
    assert (record.phase, record.summary()["step"]) == ("stopped", 0)


def test_a_second_snapshot_of_a_step_keeps_the_notebooks_copy_of_the_first(session):
    """A run that was restored from it, and then grows before its next step, takes one on the hosts only."""
    snapshots = elastic.Snapshots(outside_every=100)
    result = elastic.train_loop(step, first_state(), Data(), steps=3, snapshots=snapshots)
    first = snapshots.take(3, result.state, everywhere=True)
    first.finished.wait()
    second = snapshots.take(3, result.state)
    second.finished.wait()
    snapshots.forget_hosts()
    assert snapshots.latest() is second
    # Those that were on the hosts only are gone, with what they referred to.
    assert snapshots.oldest() is second


@pytest.mark.parametrize("steps", [20, 30])
def test_a_run_whose_snapshots_have_all_of_its_steps_says_so_and_draws_no_data(session, caplog, steps):
    snapshots = elastic.Snapshots()
    elastic.train_loop(step, first_state(), Data(), steps=30, snapshots=snapshots)
    again, said = Data(), f"The snapshots are at step 30 already; {steps} are wanted: nothing to do."
    result = elastic.train_loop(step, first_state(), again, steps=steps, snapshots=snapshots)
    assert (result.step, result.metrics, again.number) == (30, {}, 0)
    assert int(np.asarray(result.state["n"])) == 30
    assert said in [event.message for event in result.record.events]
    # As a warning, which a cell shows without the panel too.
    assert said in [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert RUNS.shown() is not result.record, "that of the training before it stays"
    # And the snapshots still lead on, with data that begin anew.
    check(elastic.train_loop(step, first_state(), Data(), steps=35, snapshots=snapshots), 35, since=30)
