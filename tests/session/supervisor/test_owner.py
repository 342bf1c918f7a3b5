"""The owner of a session, in one process with its supervisor, on the embedded cluster."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from session_records import new_record

from pathways_jupyter.base import json_lines
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.render.sessions import state_words
from pathways_jupyter.session import client, protocol, registry
from pathways_jupyter.session.protocol import Method, Request, Response
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.supervisor import supervisor
from pathways_jupyter.session.supervisor.control_socket import ControlConnection
from pathways_jupyter.session.supervisor.early_connections import EarlyConnections
from pathways_jupyter.session.supervisor.supervisor import Supervisor

DEADLINE = 60.0


class Session:
    """A supervisor whose kernel is this process; its owner's connection ends with :meth:`leave`."""

    def __init__(self, config: ConnectConfig) -> None:
        self.record = new_record(config=protocol.config_to_json(config), namespace="default", kernel_pid=0)
        self._config = config

    async def start(self) -> None:
        near, far = socket.socketpair()
        self._owner = ControlConnection(*await asyncio.open_connection(sock=near))
        _, self._kernel = await asyncio.open_connection(sock=far)
        self.supervisor = Supervisor(self.record, self._config, self._owner, EarlyConnections())
        self.running = asyncio.create_task(self.supervisor.run())
        request = Request(1, Method.START, {})
        self.first = asyncio.create_task(self.supervisor.handle(request, self._owner))

    async def ask(self, method: Method, **params: Any) -> Any:
        return await client.arequest(self.record, method, patience=DEADLINE, **params)

    async def leave(self) -> None:
        """End the kernel's connection."""
        self._kernel.close()
        await self._owner.close()
        self.supervisor.left(self._owner)

    async def close(self) -> None:
        self.supervisor.end("the test is over")
        await self.running
        await asyncio.gather(self.first, return_exceptions=True)
        self._kernel.close()
        await self._owner.close()


@pytest.fixture
def sessions(config, gone) -> Callable[..., Any]:
    @contextlib.asynccontextmanager
    async def begin(**changes: Any) -> AsyncIterator[Session]:
        made = Session(config(1, **changes))
        async with asyncio.timeout(DEADLINE):
            await made.start()
            try:
                yield made
            finally:
                await made.close()
        await asyncio.to_thread(gone, made.record.id)

    return begin


async def test_a_session_ends_with_its_kernel(sessions):
    async with sessions() as made:
        record = await made.first
        assert record["state"] == SessionState.CONNECTED
        assert (await made.ask(Method.STATUS))["pid"] == os.getpid()
        followed = asyncio.create_task(_last_words(made.record))
        await made.ask(Method.EVENTS)
        await made.leave()
        await made.running
        assert registry.read(made.record.id) is None
        # Not "Disconnected.", which a user does.
        assert await followed == "Ended with its kernel."


async def _last_words(record):
    async with contextlib.aclosing(client.follow(record)) as events:
        async for event in events:
            if event.data.get("state") == SessionState.CLOSED:
                return event.message
    return ""


async def test_a_session_is_not_taken_from_a_kernel_that_runs(sessions):
    async with sessions(linger=DEADLINE) as made:
        await made.first
        with pytest.raises(SessionError, match="belongs to a running kernel"):
            await made.ask(Method.ATTACH)


async def test_how_many_arrays_a_kernel_has_is_not_known_where_it_does_not_say(sessions, monkeypatch):
    monkeypatch.setattr(supervisor, "_KERNEL_SECONDS", 0.1)
    async with sessions() as made:
        await made.first
        assert await made.ask(Method.ARRAYS) is None


async def test_a_session_that_lingers_belongs_to_the_kernel_that_attaches(sessions):
    async with sessions(linger=math.inf) as made:
        job = (await made.first)["job"]
        await made.leave()
        waits = SessionRecord.from_json(await made.ask(Method.STATUS))
        assert state_words(waits) == "connected, kept for another kernel"
        reader, writer = await asyncio.open_unix_connection(made.record.socket, limit=json_lines.MAX_BYTES)
        writer.write(protocol.encode(Request(1, Method.ATTACH)))
        answer = None
        while not isinstance(answer, Response):
            answer = protocol.decode(await reader.readline())
        assert answer.error is None
        assert (answer.result["kernel_pid"], answer.result["job"]) == (os.getpid(), job)
        assert not made.running.done()
        assert state_words(SessionRecord.from_json(answer.result)) == "connected"
        # Its end is the session's again, which then lingers for the next one.
        writer.close()
        await writer.wait_closed()
        assert (await made.ask(Method.STATUS))["state"] == SessionState.CONNECTED
        assert await made.ask(Method.DISCONNECT) == {"left": ""}


async def test_a_session_that_lingers_is_not_about_to_be_suspended(sessions):
    async with sessions(linger=math.inf, suspend_after=3600.0) as made:
        await made.first
        made.supervisor._session_log.unused("soon", time.time(), suspends_at=time.time() + 300)
        assert (await made.ask(Method.STATUS))["suspends_at"]
        await made.leave()
        assert (await made.ask(Method.STATUS))["suspends_at"] == 0


async def test_a_session_that_ends_refuses_what_would_make_a_proxy(sessions, hold):
    await asyncio.to_thread(hold, 2)
    async with sessions(wait=DEADLINE) as made:
        await made.leave()
        with pytest.raises(SessionError, match=r"ended before it was connected\. Ended with its kernel\."):
            await made.first
        await made.running
        with pytest.raises(SessionError, match="is ending"):
            await made.supervisor.handle(Request(2, Method.RECONNECT, {}), made._owner)


async def test_a_session_that_ends_is_not_taken_over(sessions):
    async with sessions(linger=DEADLINE) as made:
        await made.first
        await made.leave()
        made.supervisor.end("the test is over")
        with pytest.raises(SessionError, match="is ending"):
            await made.supervisor.handle(Request(2, Method.ATTACH, {}), made._owner)


async def test_what_only_a_kernel_answers_is_refused(sessions):
    async with sessions() as made:
        await made.first
        with pytest.raises(SessionError, match="A supervisor asks idle"):
            await made.ask(Method.IDLE)
