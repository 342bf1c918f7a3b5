"""A session is suspended by its kernel when nothing was computed, after a notice, and never without the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest
from session_records import new_record

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.supervisor.session_log import SessionLog
from pathways_jupyter.session.supervisor.suspend_guard import SuspendGuard

DEADLINE = 30.0


class Kernel:
    """Answers, and says what it was asked."""

    def __init__(self, idle: float | None) -> None:
        self.idle = idle
        self.asked: asyncio.Queue[Method] = asyncio.Queue()

    async def ask(self, method, **params):
        await self.asked.put(method)
        return self.idle if method is Method.IDLE else True


@contextlib.asynccontextmanager
async def guarded(
    kernel: Kernel, *, user: float = 0.0, **options: float
) -> AsyncIterator[tuple[SuspendGuard, SessionLog]]:
    log = SessionLog(new_record(state=SessionState.CONNECTED), ConnectConfig())
    log.update(instances={"tpuv6e:2x2": 2}, suspend_after=user)
    guard = SuspendGuard(log, kernel.ask, **options)
    task = asyncio.create_task(guard.run())
    try:
        async with asyncio.timeout(DEADLINE):
            yield guard, log
    finally:
        task.cancel()


def notices(log: SessionLog) -> list[str]:
    return [event.message for event in log.history._events if "Nothing was computed" in event.message]


async def test_it_says_so_before_and_asks_once():
    kernel = Kernel(idle=100.0)
    async with guarded(kernel, user=0.2) as (_, log):
        while await kernel.asked.get() is not Method.SUSPEND:
            pass
        assert len(notices(log)) == 1
        for _ in range(5):
            assert await kernel.asked.get() is Method.IDLE
        # A cell has run: from there on it is counted anew.
        kernel.idle = 0.0
        while await kernel.asked.get() is not Method.IDLE or kernel.asked.qsize():
            pass
        kernel.idle = 100.0
        while await kernel.asked.get() is not Method.SUSPEND:
            pass
        assert len(notices(log)) == 2


async def test_keeping_it_begins_anew_and_all_who_follow_it_see_until_when():
    kernel = Kernel(idle=100.0)
    async with guarded(kernel, user=1.0) as (guard, log):
        for _ in range(2):
            while not log.record.suspends_at:
                assert await kernel.asked.get() is Method.IDLE
            assert log.record.suspends_at > time.time()
            guard.keep()
            assert log.record.suspends_at == 0.0
    seen = [event.data["suspends_at"] for event in log.history._events]
    assert [bool(at) for at in seen] == [True, False, True, False]


async def test_without_a_limit_it_is_reported_and_not_suspended():
    kernel = Kernel(idle=100.0)
    async with guarded(kernel, unused_seconds=0.2) as (guard, log):
        for _ in range(10):
            assert await kernel.asked.get() is Method.IDLE
        assert (log.record.unused_since < time.time(), log.record.suspends_at) == (True, 0.0)
        # Once, until it is used.
        (notice,) = notices(log)
        assert notice.endswith("The session holds 2 slices.")
        guard.keep()
        assert log.record.unused_since == 0.0
        while not log.record.unused_since:
            await kernel.asked.get()
        kernel.idle = 0.0
        while log.record.unused_since:
            await kernel.asked.get()
    kept = [event.message for event in log.history._events if event.data["unused_since"] == 0.0]
    assert kept == ["In use again."] * 2


async def test_a_session_that_is_lost_is_not_about_to_be_suspended():
    log = SessionLog(new_record(state=SessionState.CONNECTED), ConnectConfig())
    log.unused("soon", time.time(), suspends_at=time.time() + 60)
    log.enter(SessionState.DEGRADED, "a slice is down")
    assert log.record.suspends_at
    log.enter(SessionState.LOST, "gone")
    assert log.record.suspends_at == 0.0


@pytest.mark.parametrize("idle", [None, 0.0])
async def test_a_kernel_that_is_busy_or_silent_keeps_its_session(idle):
    kernel = Kernel(idle)
    async with guarded(kernel, user=0.1) as (_, log):
        for _ in range(10):
            assert await kernel.asked.get() is Method.IDLE
        assert not notices(log)


@pytest.mark.parametrize(("user", "service", "limit"), [(0.0, 0.0, 0.0), (60.0, 0.0, 60.0), (0.0, 90.0, 90.0)])
async def test_users_may_choose_less_than_the_service_and_not_more(user, service, limit):
    log = SessionLog(new_record(), ConnectConfig(suspend_after=user))
    log.limit_idleness(service)
    assert log.record.suspend_after == limit
    log.limit_idleness(30.0)
    assert log.record.suspend_after == 30.0
    log.limit_idleness(7200.0)
    assert log.record.suspend_after == (user or 7200.0)
