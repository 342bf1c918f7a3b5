"""Content of a session's log, and how much of it is kept."""

from __future__ import annotations

import math
import time

import pytest

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.session import protocol, recording
from pathways_jupyter.session.supervisor import session_log
from pathways_jupyter.session.supervisor.session_log import History


def value(kind=EventKind.ELASTIC, message="Slice 1 is lost.", at=1.0, **data):
    return Event(kind, message, at, data).to_json()


def test_an_event_comes_back_as_it_was():
    (event,) = recording.checked({"events": [value(what="detected", slices=[0, 2])]})
    assert event == Event(EventKind.ELASTIC, "Slice 1 is lost.", 1.0, {"what": "detected", "slices": [0, 2]})


def test_a_message_becomes_one_line():
    (event,) = recording.checked({"events": [value(message="a\nb\x1b[2J\u202e" + "x" * 1000)]})
    assert event.message.startswith("a b [2J x")
    assert len(event.message) == recording.MESSAGE_CHARACTERS


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"events": []},
        {"events": {}},
        {"events": [value()] * (recording.MOST_EVENTS + 1)},
        {"events": [value(), {"kind": "elastic"}]},
        {"events": [value(kind=EventKind.STATE)]},
        {"events": [value(kind=EventKind.SLICE_DOWN)]},
        {"events": [value(state="closed")]},
        {"events": [value(kind=EventKind.ELASTIC_RUN, generation=7)]},
        {"events": [value(text="x" * 3000)]},
        {"events": [value(loss=math.nan)]},
        {"events": [value(at=math.nan)]},
        {"events": [value(at=-1.0)]},
        {"events": [{**value(), "at": 1e12}]},
        {"events": [{**value(), "data": 7}]},
        {"events": ["elastic"]},
    ],
    ids=range(16),
)
def test_what_may_not_be_recorded_is_refused(params):
    with pytest.raises(ConfigError) as refused:
        recording.checked(params)
    assert "session-protocol.md" in refused.value.hint


class Listener:
    """A connection as the history sees it."""

    def __init__(self):
        self.events = []
        self.transport = self

    def is_closing(self):
        return False

    def get_write_buffer_size(self):
        return 0

    def write(self, line):
        self.events.append(protocol.decode(line))


def test_recorded_events_do_not_push_out_the_sessions_own():
    log, late = History(), Listener()
    log.add(Event(EventKind.STAGE, "Looking for the service.", 0.0))
    for number in range(3 * session_log.RECORDED):
        log.add(Event(EventKind.ELASTIC, str(number), float(number)))
    log.listen(late)
    assert [event.kind for event in late.events[:2]] == [EventKind.STAGE, EventKind.ELASTIC]
    assert [event.message for event in late.events[1:]] == [
        str(number) for number in range(2 * session_log.RECORDED, 3 * session_log.RECORDED)
    ]


def test_of_a_run_only_the_newest_state_is_kept_and_its_kernel_does_not_get_it_back():
    log, kernel, page, late = History(), Listener(), Listener(), Listener()
    log.listen(kernel, owner=True)
    log.listen(page)
    for step in range(3):
        log.add(Event(EventKind.ELASTIC_RUN, "", time.time(), {"step": step}))
    log.listen(late)
    assert [event.data["step"] for event in page.events] == [0, 1, 2]
    assert [event.data["step"] for event in late.events] == [2]
    assert kernel.events == []


class Broken:
    """A listener whose every method fails."""

    def __getattr__(self, name):
        raise RuntimeError(f"{name} is broken")


def test_a_listener_that_fails_keeps_no_event_from_the_others():
    log, good = History(), Listener()
    log.listen(Broken())
    log.listen(good)
    log.add(Event(EventKind.WARNING, "one"))
    log.listen(Broken())
    log.add(Event(EventKind.WARNING, "two"))
    assert [event.message for event in good.events] == ["one", "two"]
