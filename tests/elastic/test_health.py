"""Usable slices, with a session's events and without them."""

from __future__ import annotations

import pytest
from waits import wait_until

from pathways_jupyter.elastic import faults
from pathways_jupyter.elastic.health import Health, by_slice, probe

DEADLINE = 60.0


def test_devices_are_grouped_by_slice_and_all_answer(session):
    import jax

    slices = by_slice(jax.devices())
    assert {index: set(devices) for index, devices in slices.items()} == {
        index: set(devices) for index, devices in session.slices().items()
    }
    assert probe(slices) == {0, 1, 2}
    assert probe({2: slices[2]}) == {2}


def test_a_loss_is_known_from_the_sessions_events_and_its_end_too(session, take_down):
    said = []
    health = Health(session.slices(), session, settle_seconds=0.05)
    health.listeners.append(lambda index, up, sentence: said.append((index, up)))
    health.start()
    assert health.wait_for(3, timeout=DEADLINE) == {0, 1, 2}
    take_down(1, seconds=600)
    wait_until(lambda: said == [(1, False)])
    with pytest.raises(TimeoutError, match="Only 2 of 3 slices are up after"):
        health.wait_for(3, timeout=0.5)
    assert health.up == health.trusted == {0, 2}
    faults.heal(session)
    assert health.wait_for(3, timeout=DEADLINE) == {0, 1, 2}
    wait_until(lambda: said == [(1, False), (1, True)])
    health.close()
    assert not health.is_watching


def test_without_a_session_the_devices_are_asked(session, take_down):
    health = Health(session.slices())
    assert health.check() == {0, 1, 2}
    since = session.event_count
    take_down(2, seconds=600)
    next(event for event in session.follow(since) if event.data.get("slice") == 2)
    assert health.check([0, 2]) == {0}
    assert health.up == {0, 1}
    faults.heal(session)


@pytest.mark.thorough
def test_the_functions_of_pathwaysutils_work_in_a_session_as_they_are(session, take_down):
    import jax
    from pathwaysutils.elastic import elastic as theirs

    slices = theirs.get_slice_to_devices(jax.devices())
    assert {index: tuple(devices) for index, devices in slices.items()} == by_slice(jax.devices())
    assert theirs.wait_for_slices(3, poll_interval=0.05, timeout=DEADLINE) == {0, 1, 2}
    since = session.event_count
    array = jax.device_put(1.0, slices[1][0])
    take_down(1, seconds=600)
    next(event for event in session.follow(since) if event.data.get("slice") == 1)
    assert theirs.get_active_slice_indices(slices) == {0, 2} == probe(slices)
    with pytest.raises(jax.errors.JaxRuntimeError) as lost:
        jax.block_until_ready(array + 1)
    assert theirs.is_error_due_to_slice_down(lost.value)
    faults.heal(session)
    assert theirs.wait_for_slices(3, poll_interval=0.05, timeout=DEADLINE) == {0, 1, 2}
