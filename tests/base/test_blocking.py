"""Asynchronous calls from places that have a running loop, or none."""

import asyncio
import contextlib
import itertools
import signal
import threading

import pytest
from sigint_tracer import sigint_at

from pathways_jupyter.base import interrupts, tasks


@pytest.fixture(scope="module", params=[False, True], ids=["own thread", "background"])
def place(request):
    """Thread of a call."""
    return tasks.Background() if request.param else None


async def test_a_call_works_under_a_running_loop():
    async def answer():
        await asyncio.sleep(0)
        return 42

    assert tasks.run(answer()) == 42


def test_leaving_an_iteration_closes_its_source():
    closed = threading.Event()

    async def numbers():
        try:
            for number in itertools.count():
                yield number
                await asyncio.sleep(0)
        finally:
            closed.set()

    with tasks.iterate(numbers) as found:
        assert list(itertools.islice(found, 3)) == [0, 1, 2]
    assert closed.is_set()


def test_more_values_than_fit_arrive_in_order():
    async def numbers():
        for number in range(5000):
            yield number

    with tasks.iterate(numbers) as found:
        assert list(found) == list(range(5000))


def test_an_iteration_ends_with_what_its_source_raises():
    async def broken():
        yield 1
        raise OSError("cut")

    with tasks.iterate(broken) as found:
        assert next(found) == 1
        with pytest.raises(OSError, match="cut"):
            next(found)


def test_an_interrupt_of_an_iteration_cuts_nothing_that_its_block_does_with_a_value():
    written, cleaned = [], threading.Event()

    async def lines():
        try:
            for number in itertools.count():
                yield number
                await asyncio.sleep(0)
        finally:
            cleaned.set()

    def write(number):
        written.append(f"{number} begins")
        if number == 3:
            signal.raise_signal(signal.SIGINT)
        written.append(f"{number} ends")

    def follow():
        with tasks.iterate(lines) as found:
            for each in found:
                write(each)

    with pytest.raises(KeyboardInterrupt):
        follow()
    assert written[-2:] == ["3 begins", "3 ends"]
    assert cleaned.is_set()


def test_an_interrupt_after_the_last_value_is_raised_at_the_end_of_the_block():
    async def one():
        yield 1

    written = []

    def read():
        with tasks.iterate(one) as found:
            written.extend(found)
            signal.raise_signal(signal.SIGINT)
            written.append("all")

    with pytest.raises(KeyboardInterrupt):
        read()
    assert written == [1, "all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_was_raised_inside_is_not_raised_again_outside():
    async def endless():
        yield 1
        await asyncio.sleep(600)

    def follow():
        with contextlib.suppress(KeyboardInterrupt), tasks.iterate(endless) as found:
            for _ in found:
                signal.raise_signal(signal.SIGINT)

    with interrupts.defer_sigint():
        follow()
        # As Python does: each press raises once.
        assert not interrupts.InterruptibleEvent().wait(0.01)


def test_an_interrupt_that_came_before_ends_the_next_work_at_once():
    begun = []

    async def work():
        begun.append("work")
        yield 1

    async def answer():
        begun.append("answer")

    def iterate():
        with tasks.iterate(work) as found:
            list(found)

    for each in (
        iterate,
        lambda: tasks.run(answer()),
        lambda: tasks.abandonable(lambda: begun.append("blocks"), name=""),
    ):
        with interrupts.count_sigint():
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                each()
            each()
    assert begun == ["work", "answer", "blocks"]


def test_work_that_blocks_is_abandoned_by_an_interrupt():
    going, release = threading.Event(), threading.Event()

    def work():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        release.wait(60)
        going.set()

    with pytest.raises(KeyboardInterrupt):
        tasks.abandonable(work, name="blocks")
    release.set()
    assert going.wait(60)
    assert tasks.abandonable(lambda: 7, name="returns") == 7
    with pytest.raises(ZeroDivisionError):
        tasks.abandonable(lambda: 1 // 0, name="fails")


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

    with contextlib.suppress(KeyboardInterrupt), sigint_at(line, tasks, interrupts):
        if iterates:
            with tasks.iterate(values, place) as found:
                assert list(found) == [1]
        else:
            tasks.run(work(), place)
    # Nothing still runs.
    assert cleaned.is_set() == begun.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
