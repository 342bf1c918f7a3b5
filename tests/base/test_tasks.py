"""Tasks that end together."""

import asyncio

import pytest

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ServiceError


async def test_a_failure_ends_the_others_before_it_arrives_and_stays_what_it_was():
    ended = []

    async def fail():
        raise ServiceError("refused") from OSError("the cause")

    async def run():
        try:
            await asyncio.Event().wait()
        finally:
            # A task that still cleans up when its siblings' caller goes on would be a leak.
            await asyncio.sleep(0)
            ended.append(True)

    async def both():
        async with tasks.group() as group:
            group.create_task(run())
            group.create_task(fail())

    with pytest.raises(ServiceError, match="refused") as failure:
        await both()
    assert ended == [True]
    assert isinstance(failure.value.__cause__, OSError)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancellation_ends_all_and_stays_a_cancellation():
    began = asyncio.Event()

    async def run():
        began.set()
        await asyncio.Event().wait()

    async def all_of_them():
        async with tasks.group() as group:
            group.create_task(run())

    task = asyncio.create_task(all_of_them())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_of_several_the_first_that_is_done_cancels_the_others_and_waits_for_them():
    over, kept = [], asyncio.get_running_loop().create_future()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            over.append("slow")

    async def fast() -> int:
        return 7

    waited, first, future = await tasks.first_done(slow(), fast(), kept)
    assert waited is None
    assert first is not None
    assert first.result() == 7
    assert over == ["slow"]
    assert future is None
    assert not kept.done()
    assert await tasks.first_done(slow(), kept, seconds=0.01) == (None, None)


async def test_what_waits_for_the_first_of_several_takes_them_with_it_when_it_is_cancelled():
    begun, over = asyncio.Event(), []

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.append("slow")

    waiting = asyncio.create_task(tasks.first_done(slow()))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert over == ["slow"]


async def test_tasks_that_run_are_kept_until_they_have_ended():
    running, goes_on = tasks.Running(), asyncio.Event()

    async def work():
        await goes_on.wait()
        return 7

    begun = running.begin(work())
    await asyncio.sleep(0)
    assert running == {begun}
    goes_on.set()
    assert await begun == 7
    assert not running


def test_work_that_is_abandonable_ends_the_wait_with_any_error():
    def leave():
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        tasks.abandonable(leave, name="leaves", seconds=30)
