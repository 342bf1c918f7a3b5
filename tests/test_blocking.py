"""Asynchronous calls from places that have a running loop, or none."""

import asyncio
import itertools
import threading

import pytest

from pathways_jupyter import blocking


async def test_a_call_works_under_a_running_loop():
    async def answer():
        await asyncio.sleep(0)
        return 42

    assert blocking.run(answer()) == 42


def test_what_a_call_raises_is_raised():
    async def fail():
        raise KeyError("gone")

    with pytest.raises(KeyError):
        blocking.run(fail())


def test_leaving_an_iteration_closes_its_source():
    closed = threading.Event()

    async def numbers():
        try:
            for number in itertools.count():
                yield number
                await asyncio.sleep(0)
        finally:
            closed.set()

    assert list(itertools.islice(blocking.iterate(numbers), 3)) == [0, 1, 2]
    assert closed.wait(10)


def test_more_values_than_fit_arrive_in_order():
    async def numbers():
        for number in range(5000):
            yield number

    assert list(blocking.iterate(numbers)) == list(range(5000))


def test_an_iteration_ends_with_what_its_source_raises():
    async def broken():
        yield 1
        raise OSError("cut")

    found = blocking.iterate(broken)
    assert next(found) == 1
    with pytest.raises(OSError, match="cut"):
        next(found)
