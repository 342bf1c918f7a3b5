"""The proxy is lost in the middle of a run: it gets a new one, and goes on from what the notebook remembers."""

from __future__ import annotations

import pytest
from small_training import Data, check, first_state, step

from pathways_jupyter import elastic
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.elastic.record import Kind, Record
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink


@pytest.mark.thorough
def test_a_run_that_loses_its_proxy_goes_on_with_a_new_one(session, lose):
    data, record, pod = Data(), Record(), session.record.pod
    # A manager of the user's own; its devices are replaced.
    manager = elastic.Manager(settle_seconds=0.05)
    snapshots = elastic.Snapshots(outside_every=2)

    def lose_it():
        # Steps may be faster than the copy of what was there before them.
        snapshots.wait()
        lose(pod)

    data.at[27] = lose_it
    result = elastic.train_loop(
        *(step, first_state(), data), steps=50, snapshots=snapshots, manager=manager, record=record, precompile=True
    )
    check(result, 50)
    assert session.record.pod != pod
    restored = next(event for event in record.events if event.kind is Kind.RESTORED)
    assert restored.step == 20, "the newest that was in the notebook too"
    assert any("A new proxy is connected" in event.message for event in record.events)
    assert result.goodput.seconds()["TPU_INITIALIZATION"] > 0
    assert set(manager.slice_to_devices[0]) == set(session.slices()[0])


@pytest.mark.soak
def test_a_run_with_snapshots_on_the_hosts_only_says_that_none_is_left(session, lose):
    data = Data()
    data.at[7] = lambda: lose(session.record.pod)
    with pytest.raises(elastic.ElasticRuntimeError, match="no snapshot outside of its hosts") as caught:
        elastic.train_loop(step, first_state(), data, steps=20, snapshots=elastic.Snapshots(where="hosts"))
    assert "reconnect" in caught.value.hint


@pytest.mark.soak
def test_interrupted_while_it_reconnects_it_resumes_when_it_is_called_again(session, lose, monkeypatch):
    data, snapshots, watch = Data(), elastic.Snapshots(), SupervisorLink.watch

    def interrupted(self, since=0, *, until=None):
        if until is not None:
            monkeypatch.setattr(SupervisorLink, "watch", watch)
            raise KeyboardInterrupt
        return watch(self, since)

    monkeypatch.setattr(SupervisorLink, "watch", interrupted)
    data.at[15] = lambda: lose(session.record.pod)
    with pytest.raises(KeyboardInterrupt, match=f"Reconnecting was interrupted; session {session.id} has"):
        elastic.train_loop(step, first_state(), data, steps=30, snapshots=snapshots)
    check(elastic.train_loop(step, first_state(), data, steps=30, snapshots=snapshots), 30)


@pytest.mark.thorough
@pytest.mark.parametrize("suspends", [False, True])
def test_interrupted_and_given_another_proxy_meanwhile_it_resumes_when_it_is_called_again(session, suspends):
    """By its user, or because the session was idle."""
    data, snapshots = Data(), elastic.Snapshots(outside_every=0 if suspends else 2)

    def interrupt():
        snapshots.wait()
        raise KeyboardInterrupt

    data.at[27] = interrupt
    with pytest.raises(KeyboardInterrupt):
        elastic.train_loop(step, first_state(), data, steps=50, snapshots=snapshots)
    if suspends:
        session.suspend()
        assert session.record.saved.count == 2 * len(first_state()), "of two snapshots, and not what each chip has"
        session.resume()
    else:
        session.reconnect()
    result = elastic.train_loop(step, first_state(), data, steps=50, snapshots=snapshots)
    check(result, 50, since=20)
    restored = next(event for event in result.record.events if event.kind is Kind.RESTORED)
    assert 0 < restored.data["repeated"] <= 7


@pytest.mark.thorough
def test_a_run_that_is_called_again_at_the_moment_of_a_loss_gets_a_new_proxy(session, lose, monkeypatch):
    """The connection is broken, and the session does not know it yet."""
    data, snapshots, state = Data(), elastic.Snapshots(), first_state()
    elastic.train_loop(step, state, data, steps=5, snapshots=snapshots)
    link, since = session._side.link, session.event_count
    lose(session.record.pod)
    next(event for event in session.follow(since) if event.data.get("state") == "lost")
    with monkeypatch.context() as patch:
        patch.setattr(link, "state", SessionState.CONNECTED)
        manager = elastic.Manager()
        assert manager.active_slice_indices == frozenset()
    result = elastic.train_loop(step, state, data, steps=10, snapshots=snapshots, manager=manager)
    assert result.step == 10
    assert any("A new proxy is connected" in event.message for event in result.record.events)


@pytest.mark.thorough
def test_a_run_whose_session_is_suspended_says_so_at_once(session):
    data = Data()
    data.at[7] = lambda: session.suspend({}, yes=True)
    try:
        with pytest.raises(elastic.ElasticRuntimeError, match="is suspended") as caught:
            elastic.train_loop(step, first_state(), data, steps=20, snapshots=elastic.Snapshots(where="notebook"))
        assert "resume" in caught.value.hint
    finally:
        session.resume()
