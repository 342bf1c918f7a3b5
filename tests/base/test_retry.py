"""Retrying: the pauses, their jitter, their deadline, and an end by cancellation."""

import asyncio

import pytest

from pathways_jupyter.base import tasks
from pathways_jupyter.base.tasks import Backoff


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that were made, none of which takes time."""
    made = []

    async def sleep(seconds):
        made.append(seconds)

    monkeypatch.setattr(tasks.asyncio, "sleep", sleep)
    monkeypatch.setattr(tasks.interrupts.InterruptibleEvent, "wait", lambda _, seconds: made.append(seconds))
    return made


async def attempts(backoff, count):
    async for number in backoff:
        if number == count - 1:
            return


def roughly(pauses, expected):
    pairs = zip(pauses, expected, strict=True)
    return len(pauses) == len(expected) and all(0.75 * wanted <= made <= 1.25 * wanted for made, wanted in pairs)


async def test_the_first_attempt_comes_at_once_and_pauses_double_up_to_the_longest(pauses):
    await attempts(Backoff(1.0, 5.0), 1)
    assert pauses == []
    await attempts(Backoff(1.0, 5.0), 6)
    assert roughly(pauses, [1, 2, 4, 5, 5])


def test_a_loop_without_an_event_loop_pauses_its_thread(pauses):
    numbers = zip(Backoff(1.0, 3.0), range(4), strict=False)
    assert [number for number, _ in numbers] == [0, 1, 2, 3]
    # zip() draws one more from the first.
    assert roughly(pauses, [1, 2, 3, 3])


async def test_a_success_begins_with_the_shortest_pause_again(pauses):
    backoff = Backoff(1.0, 60.0)
    await attempts(backoff, 4)
    backoff.reset()
    await backoff.wait()
    assert roughly(pauses, [1, 2, 4, 1])


def test_without_time_for_another_attempt_it_is_over():
    assert Backoff(1.0, 5.0, seconds=0).is_over
    assert Backoff(5.0, 5.0, seconds=4.0).is_over
    assert not Backoff(1.0, 5.0, seconds=100.0).is_over
    assert not Backoff(1.0, 5.0).is_over


async def test_a_delay_that_a_server_wants_is_added_to_one_pause(pauses):
    backoff = Backoff(1.0, 60.0)
    backoff.delay(10)
    await attempts(backoff, 3)
    assert roughly([pauses[0] - 10, pauses[1]], [1, 2])


async def test_no_server_stops_a_loop_for_good(pauses):
    backoff = Backoff(1.0, 60.0)
    backoff.delay(1e9)
    await backoff.wait()
    assert roughly([pauses[0] - tasks._LONGEST_DELAY_SECONDS], [1])


async def test_a_cancelled_pause_ends_the_loop():
    backoff = Backoff(3600.0, 3600.0)
    first = asyncio.Event()

    async def loop():
        async for _ in backoff:
            first.set()

    task = asyncio.create_task(loop())
    await first.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
