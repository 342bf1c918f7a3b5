"""An Interrupt during a reconnect leaves a session that can be reconnected, and nothing of the proxy it stopped."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest
from sigint_tracer import sigint_at
from waits import wait_until

from pathways_jupyter.base.events import SessionState
from pathways_jupyter.kube import objects
from pathways_jupyter.session import client, clusters
from pathways_jupyter.session.kernel import attempt, jax_switch, kernel_side, session, supervisor_link
from pathways_jupyter.session.protocol import Method

DEADLINE = 60.0
LINES = 1000
"""More lines of the modules below than a reconnect runs through on the main thread, which are 315 and those for each
further event that a slow one reports."""


def sum_of_ones() -> float:
    import jax

    return float(jax.numpy.ones(3).sum())


def delete_pod(made: session.Session) -> None:
    async def delete(client, namespace):
        await objects.delete(client, objects.PODS, made.record.pod, namespace=namespace, grace_seconds=0)

    clusters.ask(made.record, delete)


def until(made: session.Session, state: SessionState, since: int) -> None:
    assert any(event.data.get("state") == state for event in made.follow(since))


@pytest.mark.thorough
@pytest.mark.parametrize("step", [67, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(1500)])])
def test_an_interrupt_at_any_line_leaves_a_session_that_can_be_reconnected(config, counted, gone, step):
    made = session.connect(config(1))
    for line in range(1, LINES, step):
        with (
            contextlib.suppress(KeyboardInterrupt),
            sigint_at(line, session, attempt, kernel_side, jax_switch, supervisor_link) as tracer,
        ):
            made.reconnect()
        assert session.current() is made
        if not tracer.raised:
            break
    else:
        pytest.fail("there are more lines to press at")
    assert made.has_devices
    assert sum_of_ones() == 3
    assert {each: counted(made.id)[each] for each in ("jobs", "leases")} == {"jobs": 1, "leases": 1}
    made.disconnect()
    gone(made.id)


@pytest.mark.thorough
def test_a_switch_that_is_interrupted_when_a_dead_supervisor_was_replaced_is_made_before_the_next_cell(
    config, gone, monkeypatch
):
    """The new supervisor counts its proxies from 1, as the dead one did."""
    made = session.connect(config(1))
    since = made.event_count
    os.kill(made.record.pid, signal.SIGKILL)
    until(made, SessionState.LOST, since)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(jax_switch.JaxSwitch, "activate", interrupted)
        with pytest.raises(KeyboardInterrupt, match="has a new proxy, which JAX does not use yet"):
            made.reconnect()
    assert (made.state, made.has_devices) == (SessionState.CONNECTED, False)
    assert made.settle() is not None
    assert made.has_devices
    assert sum_of_ones() == 3
    made.disconnect()
    gone(made.id)


@pytest.mark.thorough
def test_a_reconnect_that_waits_for_slices_is_stopped_and_can_be_tried_again(config, hold, counted, gone):
    made = session.connect(config(2, wait=DEADLINE))
    since = made.event_count
    delete_pod(made)
    until(made, SessionState.LOST, since)
    holder = hold(1, wait=DEADLINE)
    connecting = made.attempt_reconnect()
    for event in connecting:
        if event.data.get("state") == SessionState.WAITING:
            # What an Interrupt does.
            connecting.cancel()
    assert session.current() is made
    assert (made.state, made.has_devices) == (SessionState.LOST, False)
    # The proxy that waited does not take the slices when they are free.
    wait_until(lambda: counted(made.id)["jobs"] == 0)
    holder.close()
    made.reconnect()
    assert sum_of_ones() == 3
    made.disconnect()
    gone(made.id)


@pytest.mark.soak
def test_stopped_while_a_dead_supervisor_is_replaced_it_leaves_nothing_of_the_new_one(config, gone):
    made = session.connect(config(1))
    first, since = made.id, made.event_count
    os.kill(made.record.pid, signal.SIGKILL)
    until(made, SessionState.LOST, since)
    connecting = made.attempt_reconnect()
    for event in connecting:
        if event.data.get("stage") == "create":
            connecting.cancel()
    gone(connecting._link.session)
    assert (session.current(), made.id, made.state) == (made, first, SessionState.LOST)
    made.reconnect()
    assert made.id != first
    assert sum_of_ones() == 3
    made.disconnect()


@pytest.mark.soak
def test_cancelling_where_nothing_is_under_way_changes_nothing(connected):
    record = client.request(connected.record, Method.CANCEL, patience=DEADLINE)
    assert (record["state"], record["generation"]) == ("connected", 1)
    connected.reconnect()
    assert connected.status().generation == 2
