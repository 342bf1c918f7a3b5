"""Asynchronous calls from places that have a running loop, or none."""

import asyncio
import contextlib
import itertools
import signal
import threading

import pytest
from presses import pressing

from pathways_jupyter.base import interrupts, tasks


@pytest.fixture(scope="module", params=[False, True], ids=["own thread", "background"])
def place(request):
    """Where a call runs."""
    return tasks.Background() if request.param else None


async def test_a_call_works_under_a_running_loop():
    async def answer():
        await asyncio.sleep(0)
        return 42

    assert tasks.run(answer()) == 42


def test_what_a_call_raises_is_raised():
    async def fail():
        raise KeyError("gone")

    with pytest.raises(KeyError):
        tasks.run(fail())


def test_leaving_an_iteration_closes_its_source():
    closed = threading.Event()

    async def numbers():
        try:
            for number in itertools.count():
                yield number
                await asyncio.sleep(0)
        finally:
            closed.set()

    assert list(itertools.islice(tasks.iterate(numbers), 3)) == [0, 1, 2]
    assert closed.wait(10)


def test_more_values_than_fit_arrive_in_order():
    async def numbers():
        for number in range(5000):
            yield number

    assert list(tasks.iterate(numbers)) == list(range(5000))


def test_an_iteration_ends_with_what_its_source_raises():
    async def broken():
        yield 1
        raise OSError("cut")

    found = tasks.iterate(broken)
    assert next(found) == 1
    with pytest.raises(OSError, match="cut"):
        next(found)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("iterates", [False, True])
@pytest.mark.parametrize("line", range(1, 60, 2))
def test_an_interrupt_at_any_line_cancels_the_call_and_lets_it_clean_up(line, iterates, place):
    line += 2 * iterates
    begun, cleaned = threading.Event(), threading.Event()

    async def work():
        begun.set()
        try:
            # Ends by itself where the call blocks before the line is reached.
            await asyncio.sleep(0.05)
        finally:
            cleaned.set()

    async def values():
        await work()
        yield 1

    with contextlib.suppress(KeyboardInterrupt), pressing(line, tasks, interrupts):
        if iterates:
            assert list(tasks.iterate(values, place)) == [1]
        else:
            tasks.run(work(), place)
    # Nothing still runs.
    assert cleaned.is_set() == begun.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
