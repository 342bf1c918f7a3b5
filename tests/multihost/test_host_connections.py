"""Connections that stay open between the runs of one notebook."""

import functools
import time

import psutil
import pytest
from runs import DEADLINE

from pathways_jupyter.base import tasks
from pathways_jupyter.multihost import host_connections
from pathways_jupyter.multihost import run as runs
from pathways_jupyter.multihost.run_events import Output, RunEnded


@pytest.fixture
def connections(lab):
    """Those of a notebook, which are closed at its end."""
    made = host_connections.IdleConnections()
    yield made
    tasks.run(made.close(), made.background)


def run(lab, connections, command, **given):
    """Run a command as a notebook does; return how it ended, and its lines."""
    request = runs.RunRequest(command, lab.code, logs=lab.directory / "logs", grace=0.5, **given)
    lines = []
    started = functools.partial(runs.start, lab.selection(2), request, connections)
    with tasks.iterate(started, connections.background) as events:
        for event in events:
            if isinstance(event, Output):
                lines += event.lines
            if isinstance(event, RunEnded):
                return event, sorted(lines)
    raise AssertionError("the run did not end")


def logins(lab, count):
    """The processes of sshd for `count` connections, once those that have just ended are gone."""
    deadline = time.monotonic() + DEADLINE
    while True:
        found = set()
        for host in lab.farm.hosts:
            found |= {each.pid for each in psutil.Process(host.process.pid).children()}
        if len(found) == count:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_the_next_run_uses_the_same_connections(lab, connections):
    first, lines = run(lab, connections, "echo one $WORKER", name="kept")
    assert (first.code, lines) == (0, ["one 0", "one 1"])
    open_then = logins(lab, 2)
    (lab.code / "main.py").write_text("print('changed')\n")
    second, lines = run(lab, connections, "python3 main.py", name="kept")
    assert (second.code, lines) == (0, ["changed", "changed"])
    assert logins(lab, 2) == open_then


def test_a_connection_that_broke_meanwhile_is_made_again(lab, connections):
    assert run(lab, connections, "true")[0].code == 0
    for host in lab.farm.hosts[:2]:
        assert host.cut()
    done, lines = run(lab, connections, "echo again")
    assert (done.code, lines) == (0, ["again", "again"])


def test_a_run_that_is_left_ends_on_the_hosts(lab, connections):
    request = runs.RunRequest("echo up; sleep 300", lab.code, logs=lab.directory / "logs", grace=0.5)
    started = functools.partial(runs.start, lab.selection(2), request, connections)
    with tasks.iterate(started, connections.background) as events:
        for event in events:
            if isinstance(event, Output):
                break
    assert lab.commands() == []
