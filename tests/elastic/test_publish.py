"""Events of a run are in the session's log, whether the kernel's cell is still there or not."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from dataclasses import replace

import numpy as np
import pytest

from pathways_jupyter import elastic
from pathways_jupyter.base.events import Event, EventKind, SessionState
from pathways_jupyter.elastic import faults
from pathways_jupyter.elastic.publish import Publisher
from pathways_jupyter.elastic.record import Kind, Record
from pathways_jupyter.elastic.run_registry import RUNS
from pathways_jupyter.session import client

DEADLINE = 60.0


@pytest.fixture
def session(connect):
    """A session of the test's own, whose log has no other events."""
    with connect() as made:
        yield made


def count(state, batch):
    return {"n": state["n"] + 1}, {"loss": batch.sum(), "n": state["n"]}


def batches(at=None, then=None):
    number = 0
    while True:
        if number == at:
            then()
        number += 1
        yield np.ones((24, 1), np.float32)


async def until(record, true):
    """The events of a session as another process gets them, up to the one for which `true` holds."""
    seen = []
    async with asyncio.timeout(DEADLINE), contextlib.aclosing(client.follow(record)) as events:
        async for event in events:
            seen.append(event)
            if true(event):
                return seen
    raise AssertionError(f"the session ended after {seen}")


@pytest.mark.thorough
def test_a_loss_is_in_the_sessions_log_and_the_run_with_its_end(session, take_down):
    record = Record()

    def lose():
        take_down(1, seconds=600, reported=True)

    elastic.train_loop(count, {"n": np.int32(0)}, batches(13, lose), steps=40, record=record)
    faults.heal(session)
    events = asyncio.run(until(session.record, lambda event: event.data.get("phase") == "done"))
    recorded = [event for event in events if event.kind is EventKind.ELASTIC]
    whats = [event.data["what"] for event in recorded]
    assert whats.index("detected") < whats.index("restored") < whats.index("resumed")
    assert "slice-down" not in whats, "the supervisor reports it"
    restored = next(event for event in recorded if event.data["what"] == "restored")
    own = next(event for event in record.events if event.kind is Kind.RESTORED)
    assert (restored.message, restored.at, restored.data["slices"]) == (own.message, own.at, [0, 2])
    assert restored.data["repeated"] == own.data["repeated"]
    run = events[-1].data
    assert (run["step"], run["steps"], run["total"], run["losses"]) == (40, 40, 3, record.count(Kind.DETECTED))
    assert [slices for _, slices in run["changes"]] == [3, 2]
    assert run["metrics"] == {"loss": 24.0, "n": 39.0}
    assert run["curve"]["points"][-1] == [39, 24.0]
    assert 0 < run["goodput"] < 1
    assert sum(run["seconds"].values()) == pytest.approx(sum(record.goodput.seconds().values()), rel=0.05)
    # The kernel gets the same events, and they changed nothing of the session.
    followed = (event for event in session.follow() if event.kind is EventKind.ELASTIC)
    assert list(itertools.islice(followed, len(recorded))) == recorded
    assert session.state in {SessionState.CONNECTED, SessionState.DEGRADED}


@pytest.mark.thorough
def test_a_short_call_does_not_take_the_place_of_the_training_before_it_and_both_are_listed(session):
    elastic.train_loop(count, {"n": np.int32(0)}, batches(), steps=40)
    manager = elastic.Manager()

    @manager.elastic_retry(3)
    def demo():
        # The panel shows what goes on, as long as it goes on.
        assert RUNS.shown() is RUNS.latest
        return 1

    assert demo() == 1
    events = asyncio.run(
        until(
            session.record,
            # Not two others: the list has the runs of earlier sessions too, and what demo() says may come late.
            lambda event: (
                [(run["name"], run["ended"] is None) for run in event.data.get("runs", [])][-2:]
                == [("count", False), ("demo", False)]
            ),
        )
    )
    run = events[-1].data
    long, short = run["runs"][-2:]
    assert (run["run"], run["name"], run["step"], run["phase"]) == (long["run"], "count", 40, "done")
    assert run["curve"]["points"][-1] == [39, 24.0]
    assert {name: run[name] for name in long} == long
    assert (short["name"], short["step"], short["steps"], short["phase"]) == ("demo", 0, None, "done")
    assert long["begun"] < long["ended"] <= short["begun"]
    assert RUNS.shown().id == run["run"], "%pathways elastic shows the same"


def test_a_run_that_fails_is_shown_as_stopped_and_what_is_not_finite_as_unknown(session):
    def diverge(state, batch):
        return state, {"loss": batch.sum() * np.nan}

    def ends():
        yield from (np.ones((24, 1), np.float32) for _ in range(2))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        elastic.train_loop(diverge, {"n": np.int32(0)}, ends(), steps=5)
    run = asyncio.run(until(session.record, lambda event: event.data.get("phase") == "stopped"))[-1].data
    assert run["metrics"] == {"loss": None}
    assert run["ended"] is not None


@pytest.mark.thorough
def test_a_supervisor_that_never_answers_holds_nothing_up(session, tmp_path):
    """Events that cannot be sent are dropped; neither the steps nor the end of the run wait for them."""
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "s"))
        deaf.listen()

        class Deaf:
            record = replace(session.record, socket=str(tmp_path / "s"))

        publisher = Publisher(Deaf(), lambda: Event(EventKind.ELASTIC_RUN, ""))
        for number in range(10_000):
            publisher.changed(Event(EventKind.ELASTIC, str(number)))
        publisher.close()
        assert len(publisher._events) < 1000


@pytest.mark.thorough
def test_the_end_of_a_run_is_sent_to_a_supervisor_that_is_starting_again(session, tmp_path):
    class Restarting:
        record = replace(session.record, socket=str(tmp_path / "s"))

    publisher = Publisher(Restarting(), lambda: Event(EventKind.ELASTIC_RUN, "the state"))
    publisher.changed(Event(EventKind.ELASTIC, "the last event", data={"what": "resumed"}))
    publisher.close()
    (tmp_path / "s").symlink_to(session.record.socket)
    events = asyncio.run(until(session.record, lambda event: event.message == "the state"))
    assert "the last event" in [event.message for event in events]
