from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import psutil
import pytest

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import Event, EventKind, SessionState
from pathways_jupyter.session import protocol
from pathways_jupyter.session.kernel import spawn
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink
from pathways_jupyter.session.protocol import Method, Response

DEADLINE = 60.0


def pair(**options) -> tuple[SupervisorLink, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(DEADLINE)
    return SupervisorLink(ours, "s1", **options), theirs


def send(peer: socket.socket, message) -> None:
    peer.sendall(protocol.encode(message))


def state(value: SessionState) -> Event:
    return Event(EventKind.STATE, value.value, data={"state": value})


def test_events_are_seen_until_the_answer_comes_and_the_answer_is_left_to_be_fetched():
    link, peer = pair()
    number = link.ask(Method.START, a=1)
    asked = protocol.decode(peer.recv(1000))
    assert (asked.method, asked.params, asked.id) == (Method.START, {"a": 1}, number)
    send(peer, Event(EventKind.STAGE, "one"))
    send(peer, state(SessionState.CONNECTED))
    send(peer, Response(number, result=7))
    assert [event.message for event in link.watch(until=number)] == ["one", "connected"]
    assert link.answer(number) == 7
    assert link.state is SessionState.CONNECTED
    assert link.count == 2
    assert [event.message for event in link.events(1)] == ["connected"]
    peer.close()


def test_a_supervisor_that_lives_is_waited_for_whatever_python_says_of_the_thread_that_reads(monkeypatch):
    """Until Python 3.12, an Interrupt at the wrong moment makes this so for good: python/cpython#90882."""
    link, peer = pair()
    monkeypatch.setattr(threading.Thread, "is_alive", lambda thread: False)
    number = link.ask(Method.STATUS)
    answer = threading.Timer(0.2, send, (peer, Response(number, result=7)))
    answer.start()
    assert link.answer(number, patience=DEADLINE) == 7
    assert not link.close()
    peer.close()
    assert link.close(patience=DEADLINE)


def test_an_end_that_was_not_announced_is_reported_and_cleaned_up_after():
    called = []

    def orphaned() -> Callable[[], str]:
        # A process that ends on that event must not end the thread that is to clean up after it.
        called.append(EventKind.SUPERVISOR_LOST not in [event.kind for event in link.events()])
        return lambda: "swept"

    link, peer = pair(orphaned=orphaned)
    number = link.ask(Method.STATUS)
    send(peer, state(SessionState.CONNECTED))
    peer.close()
    kinds = [event.kind for event in link.watch()]
    assert kinds[:2] == [EventKind.STATE, EventKind.SUPERVISOR_LOST]
    assert link.state is SessionState.LOST
    with pytest.raises(SessionError, match="supervisor is gone"):
        link.answer(number)
    assert link.close(patience=DEADLINE)
    assert called == [True]
    assert link.events()[-1].message == "swept"
    with pytest.raises(SessionError, match="supervisor is gone"):
        link.answer(link.ask(Method.STATUS))


@pytest.mark.parametrize(
    ("announced", "code"),
    [(True, None), (False, None), (True, 3)],
    ids=["announced", "asked for", "announced by a process that fails then"],
)
def test_an_end_that_was_announced_or_asked_for_is_no_loss(announced, code):
    process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"]) if code else None
    link, peer = pair(process=process, orphaned=lambda: pytest.fail("nothing is left to clean up"))
    if announced:
        send(peer, state(SessionState.CLOSED))
    else:
        assert not link.close()
    peer.close()
    assert link.close(patience=DEADLINE)
    assert (link.state is SessionState.CLOSED) == announced
    assert EventKind.SUPERVISOR_LOST not in [event.kind for event in link.events()]


def test_waiting_too_long_is_an_error_that_leaves_the_request_open():
    link, peer = pair()
    number = link.ask(Method.STATUS)
    with pytest.raises(SessionError, match="still working"):
        link.answer(number, patience=0.01)
    send(peer, Response(number, result=1))
    assert link.answer(number, patience=DEADLINE) == 1
    peer.close()


def test_numbers_of_events_stay_the_same_when_old_ones_are_forgotten(monkeypatch):
    monkeypatch.setattr("pathways_jupyter.session.kernel.supervisor_link._REMEMBERED", 100)
    link, peer = pair()
    for number in range(250):
        send(peer, Event(EventKind.WARNING, str(number)))
    for event in link.watch():
        if event.message == "249":
            break
    assert link.count == 250
    assert [event.message for event in link.events(248)] == ["248", "249"]
    assert link.events(250) == []
    # The oldest are gone, and none is given twice or under another's number.
    kept = [int(event.message) for event in link.events(0)]
    assert kept == list(range(kept[0], 250))
    assert 90 <= len(kept) <= 100
    assert next(link.watch(249)).message == "249"
    peer.close()


def test_a_line_that_makes_no_sense_is_passed_over():
    link, peer = pair()
    peer.sendall(b"nonsense\n")
    send(peer, Event(EventKind.WARNING, "after"))
    assert next(link.watch()).message == "after"
    peer.close()


def test_a_supervisor_that_is_killed_leaves_no_zombie():
    link = spawn.supervisor()
    process = link._process
    os.kill(process.pid, signal.SIGKILL)
    assert EventKind.SUPERVISOR_LOST in [event.kind for event in link.watch()]
    assert link.close(patience=DEADLINE)
    assert not psutil.pid_exists(process.pid)


def test_when_the_loss_of_the_supervisor_is_published_the_link_has_ended():
    """A reconnect that this event starts would otherwise ask the dead supervisor."""
    link, peer = pair(orphaned=lambda: lambda: "swept")
    ended = []
    link.on_lost = lambda reason: ended.append(link.ended)
    peer.close()
    list(link.watch())
    assert ended == [True]


def test_an_answer_that_nothing_waits_for_any_more_is_not_kept():
    link, peer = pair()
    with pytest.raises(SessionError, match="still working"):
        link.request(Method.STATUS, patience=0.01)
    link.notify(Method.KEEP)
    asked = [protocol.decode(line) for line in peer.recv(1000).splitlines()]
    assert [each.method for each in asked] == [Method.STATUS, Method.KEEP]
    last = link.ask(Method.STATUS)
    for number in (*(each.id for each in asked), last):
        send(peer, Response(number, result=number))
    assert link.answer(last, patience=DEADLINE) == last
    # What has been read is forgotten too.
    link.forget(last)
    assert not link._answers
    assert not link._open
    peer.close()
