"""The manager: pathwaysutils' names, and what its decorators do on real losses."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest
from waits import wait_until

from pathways_jupyter import elastic
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.events import EventKind
from pathways_jupyter.elastic import faults
from pathways_jupyter.elastic.record import Kind, Record
from pathways_jupyter.elastic.run_registry import RUNS
from pathways_jupyter.session.kernel import process


@pytest.fixture(params=["ours", "theirs"])
def make_manager(request, session):
    """The same program runs on both."""
    if request.param == "ours":
        return lambda: elastic.Manager(settle_seconds=0.05)
    from pathwaysutils.elastic.manager import Manager

    return Manager


@pytest.mark.thorough
def test_a_function_is_called_again_when_the_slice_is_back(make_manager, take_down):
    import jax

    manager, calls = make_manager(), []

    @manager.elastic_retry(poll_interval=0.2, timeout=60)
    def train():
        calls.append(sorted(manager.active_slice_indices))
        sharding = jax.sharding.NamedSharding(
            jax.sharding.Mesh(np.array(jax.devices()), ("chip",)), jax.sharding.PartitionSpec("chip")
        )
        value = jax.device_put(np.ones(12, np.float32), sharding)
        if len(calls) == 1:
            take_down(1)
            while True:
                value = jax.jit(lambda x: x + 0)(value).block_until_ready()
        return float(value.sum())

    assert train() == 12
    assert calls == [[0, 1, 2], [0, 1, 2]]
    assert manager.total_slice_count == manager.active_slice_count == 3


def test_resize_goes_on_with_fewer_slices_and_pause_waits_for_all(session, take_down):
    import jax

    record, since = Record(), session.event_count
    manager, calls = elastic.Manager(settle_seconds=0.05, record=record), []

    def train():
        calls.append(sorted(manager.active_slice_indices))
        sharding = jax.sharding.NamedSharding(
            jax.sharding.Mesh(np.array(manager.active_devices), ("chip",)), jax.sharding.PartitionSpec()
        )
        value = jax.device_put(np.float32(1), sharding)
        if len(calls) == 1:
            # Until it is healed below.
            take_down(1, seconds=60)
            while True:
                value = jax.jit(lambda x: x + 0)(value).block_until_ready()
        return float(value)

    assert manager.replica_resize(3, timeout=60)(train)() == 1
    faults.heal(session)
    assert manager.pause_resume(3, timeout=60)(train)() == 1
    assert calls == [[0, 1, 2], [0, 2], [0, 1, 2]]
    # What happened is recorded like that of a run of train_loop: here, and in the session's log.
    assert record is RUNS.latest
    assert record.phase == "done"
    said = [event.message for event in record.events if event.kind in {Kind.DETECTED, Kind.RESUMED}]
    assert said[:2] == ["Slice 1 lost.", "Attempt 2 begins on slices 0, 2."]
    whats = (event.data["what"] for event in session.follow(since) if event.kind is EventKind.ELASTIC)
    assert list(itertools.islice(whats, 3)) == ["injected", "detected", "resumed"]


def test_other_errors_are_not_retried(session):
    @elastic.Manager().elastic_retry(max_retries=3, poll_interval=0.2)
    def train():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        train()


def test_a_signal_calls_again_until_the_policy_ends_it(session):
    manager, calls, events = elastic.Manager(), [], []

    @manager.elastic_retry(
        retry_policy=elastic.ElasticRetryLimit(3), on_elastic_event_callback=lambda: events.append(1)
    )
    def train():
        calls.append(1)
        raise elastic.ScaleUpSignalError

    with pytest.raises(elastic.ElasticRuntimeError, match="Attempt 3 failed"):
        train()
    assert len(calls) == len(events) == 3


def test_arguments_that_cannot_be_used_are_refused_by_the_decorators_and_the_manager(session):
    manager = elastic.Manager()
    for wrong, said in (
        ({"max_retries": 0}, "max_retries must be a whole number of at least 1, not 0"),
        ({"minimum_slice_count": 4}, "minimum_slice_count is 4, but there are 3 slices in all"),
        ({"minimum_slice_count": -1}, "minimum_slice_count must be a whole number"),
        ({"poll_interval": 0}, "poll_interval must be a number of seconds, more than 0"),
        ({"timeout": "soon"}, "timeout must be a number of seconds"),
        ({"pre_callback": 1}, "pre_callback must be a function, not int"),
        ({"max_retries": 1, "retry_policy": elastic.ElasticRetryLimit(1)}, "not both"),
    ):
        with pytest.raises(ConfigError, match=said):
            manager.elastic_retry(**wrong)
    # As in pathwaysutils.
    with pytest.raises(ValueError, match="max_retries must be"):
        manager.replica_resize(0)
    with pytest.raises(ConfigError, match="max_attempts must be a whole number of at least 1, not 0"):
        elastic.ElasticRetryLimit(0)
    for wrong, said in (
        ({"devices": []}, "devices is empty"),
        ({"settle_seconds": -1}, "settle_seconds must be"),
    ):
        with pytest.raises(ConfigError, match=said):
            elastic.Manager(**wrong)
    before = manager.active_slice_indices
    with pytest.raises(ConfigError, match=r"has \[7\], which are not this manager's"):
        manager.active_slice_indices = {0, 7}
    assert manager.active_slice_indices == before


def test_a_function_that_needs_few_slices_waits_for_one(session):
    manager = elastic.Manager(settle_seconds=30)
    for index in manager.all_slice_indices:
        manager.health._set(index, False)
    manager.active_slice_indices = frozenset()
    with pytest.raises(TimeoutError, match="Only 0 of 1 slices"):
        manager.elastic_retry(minimum_slice_count=0, timeout=0.01)(lambda: None)()


def test_scaling(session):
    manager = elastic.Manager()
    manager.active_slice_indices = {0, 2}
    assert manager.inactive_slice_indices == {1}
    assert manager.scale_by_active_slices(24) == 16
    assert manager.scale_by_active_slices(3.0) == 2.0
    assert manager.active_slice_count == 2
    assert manager.default_device in session.slices()[0]
    with pytest.raises(ValueError, match="25 cannot be scaled to 2 of 3 slices"):
        manager.scale_by_active_slices(25)


def test_a_slice_that_flaps_is_trusted_later_each_time(session, caplog):
    manager = elastic.Manager(settle_seconds=30)
    said = []
    manager.health.listeners += [lambda index, up, sentence: said.append(sentence), Record().slice_changed]
    caplog.set_level(logging.INFO, "pathways_jupyter.elastic")
    for _ in range(2):
        manager.health._set(1, False)
        manager.health._set(1, True)
    assert said[1::2] == [
        "Slice 1 is up again; it is used when it has been up for 30 s.",
        "Slice 1 is up again after 2 losses; it is used when it has been up for 60 s.",
    ]
    assert caplog.messages == said, "each change is logged once"
    assert manager.health.up == {0, 1, 2}
    assert manager.health.trusted == {0, 2}
    with pytest.raises(TimeoutError, match="Only 2 of 3 slices"):
        manager.health.wait_for(3, timeout=0.01)


@pytest.mark.thorough
@pytest.mark.parametrize("in_job", [False, True], ids=["session", "job"])
def test_a_worker_that_is_back_before_anyone_asks_was_lost_all_the_same(session, take_down_and_up, monkeypatch, in_job):
    """In a job no events say what happened; with a session they have said so before the error comes."""
    import jax

    if in_job:
        monkeypatch.setattr(process, "session", lambda: None)
    manager, said = elastic.Manager(settle_seconds=30), []
    manager.health.listeners.append(lambda index, up, sentence: said.append(sentence))
    everywhere = jax.sharding.NamedSharding(
        jax.sharding.Mesh(np.array(jax.devices()), "x"), jax.sharding.PartitionSpec()
    )
    for settle in ("is up again; it is used when it has been up for 30 s.", "after 2 losses; it is used when it has"):
        value = jax.device_put(np.float32(1), everywhere)
        if not in_job:
            manager.start_monitoring()
        take_down_and_up(1)
        with pytest.raises(jax.errors.JaxRuntimeError, match="the worker of slice 1 is gone") as error:
            jax.jit(lambda x: x + 0)(value).block_until_ready()
        assert manager.note_loss(error.value) == manager.active_slice_indices == {0, 2}
        assert (manager.health.up, manager.health.trusted) == ({0, 1, 2}, {0, 2})
        wait_until(lambda: len(said) == 2, 60)
        assert said[0] == "Slice 1 is down."
        assert settle in said[1], "counted once"
        said.clear()
        # Some time later.
        manager.active_slice_indices = {0, 1, 2}
    manager.close()


def test_the_sessions_event_about_a_loss_that_an_error_has_named_is_no_second_one(session):
    manager, said = elastic.Manager(settle_seconds=30), []
    manager.health.listeners.append(lambda index, up, sentence: said.append(sentence))
    assert manager.note_loss(RuntimeError("DATA_LOSS: slice down: the worker of slice 1, 2 is gone")) == {0}
    manager.health._set(1, False)
    manager.health._set(1, True)
    assert said[-1] == "Slice 1 is up again; it is used when it has been up for 30 s."
    manager.health._set(1, False)
    manager.health._set(1, True)
    assert "after 2 losses" in said[-1]
    # Other errors name none.
    assert manager.note_loss(RuntimeError("INTERNAL: cannot take slice 0 of an array")) == {0}


def test_the_steps_of_a_loop_of_ones_own_are_in_its_record(session):
    manager = elastic.Manager()

    @manager.elastic_retry(max_retries=1)
    def train():
        for step in range(2):
            manager.note_step(step, loss=0.5)

    train()
    record = RUNS.latest
    assert (record.phase, record.metrics) == ("done", {0: {"loss": 0.5}, 1: {"loss": 0.5}})
    assert {slices for _, slices in record.slices} == {3}
