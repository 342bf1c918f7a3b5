"""A session's log, of interruptions above all, as `%pathways events` shows it."""

from __future__ import annotations

import time

import pytest
from session_records import bare_record

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.events import EventKind, SessionState, Transfer
from pathways_jupyter.session.supervisor.session_log import SessionLog


@pytest.fixture
def log() -> SessionLog:
    return SessionLog(bare_record(), ConnectConfig(instances={"tpuv6e:2x2": 1}))


@pytest.mark.parametrize("jump", [-120.0, -25 * 3600.0, 24 * 3600.0])
def test_setting_the_clock_does_not_change_how_long_a_session_has_waited(log, monkeypatch, jump):
    log.waits("1 is wanted.")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    assert log.figures(relay=False).waited >= 0
    log.connected()
    assert 0 <= log.record.waited < 60


@pytest.mark.parametrize(
    ("down", "states"), [(False, ["interrupted", "connected"]), (True, ["interrupted", "connected", "degraded"])]
)
def test_the_end_of_an_interruption_is_an_event_also_where_a_slice_is_down(log, monkeypatch, down, states):
    log.report(EventKind.SLICE_PLACED, "Slice 0 is placed.", slice=0, number=0)
    log.connected()
    events = []
    monkeypatch.setattr(log.history, "add", events.append)
    log.interrupted("The connection was reset.")
    log.interrupted("You are not logged in. Log in again.")
    if down:
        log.report(EventKind.SLICE_DOWN, "Slice 0 is down.", slice=0, number=0)
    log.reconnected(6.2)
    changes = [event for event in events if event.kind is EventKind.STATE]
    assert [event.data["state"] for event in changes] == states
    assert changes[1].message == "Connected again after 6 s; the arrays were kept."
    (warning,) = [event.message for event in events if event.kind is EventKind.WARNING]
    assert warning == "Still no connection. You are not logged in. Log in again."


@pytest.mark.parametrize("left_for", ["an interruption", "a suspend", "both"])
def test_what_is_left_for_a_while_lasts_since_it_began(log, monkeypatch, left_for):
    log.report(EventKind.SLICE_PLACED, "Slice 0 is placed.", slice=0, number=0)
    log.connected()
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    log.report(EventKind.SLICE_DOWN, "Slice 0 is down.", slice=0, number=0)
    if left_for != "an interruption":
        now[0] += 60
        log.transferred(Transfer(0, 10))
        assert (log.record.state, log.record.since) == (SessionState.SUSPENDING, 1060.0)
    if left_for != "a suspend":
        now[0] += 60
        log.interrupted("The connection was reset.")
        now[0] += 60
        log.reconnected(60.0)
    if left_for == "both":
        assert (log.record.state, log.record.since) == (SessionState.SUSPENDING, 1060.0)
    log.transferred(None)
    assert (log.record.state, log.record.since) == (SessionState.DEGRADED, 1000.0)
    now[0] += 3600
    log.report(EventKind.SLICE_HEALED, "Slice 0 is back.", slice=0, number=0)
    log.report(EventKind.SLICE_DOWN, "Slice 0 is down.", slice=0, number=0)
    assert log.record.since == now[0]


def test_a_session_that_could_not_be_reconnected_is_lost_since_it_was_lost_and_as_it_was(log, monkeypatch):
    log.connected()
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    log.enter(SessionState.LOST, "Gone.")
    for _ in range(2):
        now[0] += 60
        log.enter(SessionState.STARTING, "Connecting again.")
        assert log.record.since == now[0]
        log.waits("1 is wanted.")
        log.enter(SessionState.LOST, "Taken.")
        assert log.record.since == 1000.0
