"""Notices in a terminal after a command, about events that came while it ran."""

import queue
from types import SimpleNamespace

import pytest

from pathways_jupyter.base.events import Event, EventKind, SessionState
from pathways_jupyter.magics.notices import Notices
from pathways_jupyter.magics.screen import Screen

DOWN = Event(EventKind.SLICE_DOWN, "Slice 1 is down.", 1_000.0, {"slice": 1, "number": 1})
HEALED = Event(EventKind.SLICE_HEALED, "Slice 1 is up again.", 1_060.0, {"slice": 1, "number": 1})
LOST = Event(EventKind.PROXY_LOST, "The proxy is gone.", 1_100.0)
CUT = Event(EventKind.STATE, "Lost the connection.", 1_200.0, {"state": SessionState.INTERRUPTED})
BACK = Event(EventKind.STATE, "Connected again.", 1_230.0, {"state": SessionState.CONNECTED})
REPLACED = Event(EventKind.STATE, "Connected.", 1_300.0, {"state": SessionState.CONNECTED, "generation": 2})
ENDED = Event(EventKind.STATE, "Closed.", 1_400.0, {"state": SessionState.CLOSED})


@pytest.fixture
def said(capsys):
    """Return the lines that are shown after events have come while one command ran."""

    def said(*events):
        seen = queue.SimpleQueue()
        notices = Notices(iter(events), Screen(SimpleNamespace()), lambda: seen.put(None), lambda: 0)
        for _ in events:
            seen.get(timeout=60)
        notices.flush()
        return capsys.readouterr().out.splitlines()

    return said


def test_a_loss_is_shown_with_advice_until_it_is_over(said):
    down, advice = said(DOWN)
    assert down.endswith("Slice 1 is down.")
    assert "DATA_LOSS" in advice
    healed, advice = said(DOWN, HEALED)
    assert "Slice 1 was down from" in healed
    assert "its earlier arrays remain lost" in advice


def test_a_slice_that_comes_and_goes_is_one_line(said):
    again, _ = said(DOWN, HEALED, DOWN, HEALED)
    assert "Slice 1 was down 2 times, the last time from" in again
    down, _ = said(DOWN, HEALED, DOWN)
    assert down.endswith("Slice 1 is down. It had been down 1 time before.")


def test_another_proxy_and_the_end_of_the_session_end_a_loss(said):
    replaced, advice = said(LOST, REPLACED)
    assert "The proxy is gone. A new proxy is connected since" in replaced
    assert advice.strip() == "Arrays on the previous one remain lost."
    (ended,) = said(DOWN, ENDED)
    assert ended.endswith("Slice 1 is down. The session has ended.")


def test_an_interruption_and_its_end_are_one_line_beside_those_of_slices(said):
    cut, advice = said(CUT)
    assert cut.endswith("Lost the connection.")
    assert "Interrupt stops a cell" in advice
    assert [line.rpartition("  ")[2] for line in said(CUT, BACK)] == ["Connected again."]
    assert len(said(DOWN, CUT, BACK)) == 3


def test_what_is_no_loss_is_not_shown(said):
    assert said(REPLACED) == said(ENDED) == []
