"""Talk to a running session's supervisor through its control socket.

For processes that did not start the session: the command line uses :func:`request`, the server extension
:func:`arequest` and :func:`follow` in its event loop. The kernel that owns a session has a
:class:`~pathways_jupyter.session.kernel.supervisor_link.SupervisorLink` instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

from pathways_jupyter.base import json_lines, tasks
from pathways_jupyter.base.errors import PathwaysError, SessionError
from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.session import protocol, registry
from pathways_jupyter.session.protocol import Method, Request, Response
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.verdicts import SessionCommand, verdict

ANSWER_SECONDS = 5.0
"""Seconds to wait for an answer that needs no work in the cluster."""
CHANGE_SECONDS = 150.0
"""Longest wait for a disconnect or reconnect; longer than the supervisor waits for an unreachable API server."""


def request(record: SessionRecord, method: Method, *, patience: float = ANSWER_SECONDS, **params: Any) -> Any:
    """Send a request to the supervisor of `record`, and return its answer.

    Args:
      patience: Seconds to wait for the answer; ``disconnect`` and ``reconnect`` take as long as the cluster does. Where
        that is longer than for an answer without work, nothing is asked of a supervisor that does not answer.

    Raises:
      SessionError: The supervisor has ended, or does not answer.
      PathwaysError: Its answer is an error.
    """
    return tasks.run(arequest(record, method, patience=patience, **params))


async def arequest(record: SessionRecord, method: Method, *, patience: float = ANSWER_SECONDS, **params: Any) -> Any:
    """:func:`request` for an event loop."""
    if patience > ANSWER_SECONDS and method is not Method.STATUS:
        # A stopped process would do it once it is continued, perhaps long after who asked has given up.
        await _require_answer(record)
    try:
        async with asyncio.timeout(patience), _connected(record) as (reader, writer):
            writer.write(protocol.encode(Request(1, method, params)))
            while line := await reader.readline():
                message = protocol.decode(line)
                if isinstance(message, Response) and message.error is not None:
                    raise message.error
                if isinstance(message, Response):
                    return message.result
    except TimeoutError as error:
        raise silent(record, method, patience) from error
    except (OSError, ValueError) as error:
        raise _gone(record) from error
    raise _gone(record)


async def end(record: SessionRecord, report: Callable[[str], None] = lambda reason: None) -> None:
    """End a session, and return when its proxy, its Lease and the tunnel are removed.

    Args:
      report: Called with why that takes longer.

    Raises:
      SessionError: The supervisor does not answer, or something could not be removed.
    """

    async def listen(since: float) -> None:
        async with contextlib.aclosing(follow(record)) as events:
            async for event in events:
                if event.kind is EventKind.WARNING and event.at > since:
                    # The next ones say the same, and the last of them is the error.
                    return report(event.message)

    listening = asyncio.create_task(listen(time.time()))
    try:
        answer = await arequest(record, Method.DISCONNECT, patience=CHANGE_SECONDS)
    finally:
        await tasks.stop(listening)
    if left := answer["left"]:
        raise SessionError(f"Session {record.id} has ended, but not all of it could be removed: {left}")


async def _require_answer(record: SessionRecord) -> None:
    if (known := await _present(record)) is not None and known.supervisor == record.silence:
        raise verdict(known, SessionCommand.USE).error()


async def present(records: Sequence[SessionRecord]) -> list[SessionRecord]:
    """Return sessions as their supervisors know them now; those that have ended in the meantime are left out.

    A record whose supervisor has ended, or does not answer in time, says so. Sessions of other machines are as they
    were recorded.
    """
    answers = await asyncio.gather(*(_present(record) for record in records))
    return [record for record in answers if record is not None]


def now(record: SessionRecord, *, patience: float = ANSWER_SECONDS) -> SessionRecord:
    """Return a session as :func:`present` does, and one that has ended in the meantime as it was recorded."""
    return tasks.run(_present(record, patience)) or record


async def _present(record: SessionRecord, patience: float = ANSWER_SECONDS) -> SessionRecord | None:
    if not record.is_here:
        return record
    try:
        return record.as_here(SessionRecord.from_json(await arequest(record, Method.STATUS, patience=patience)))
    except (PathwaysError, KeyError, TypeError, ValueError):
        if registry.read(record.id) is None:
            return None
        # A stopped process has its socket still: the system accepts connections for it.
        alive = await asyncio.to_thread(registry.is_alive, record)
        return dataclasses.replace(record, supervisor=record.silence if alive else registry.ABANDONED)


async def follow(record: SessionRecord) -> AsyncGenerator[Event, None]:
    """Yield every event of a session, the past ones first, until the session ends.

    Raises:
      SessionError: The supervisor has ended.
    """
    try:
        async with _connected(record) as (reader, writer):
            writer.write(protocol.encode(Request(1, Method.EVENTS)))
            while line := await reader.readline():
                message = protocol.decode(line)
                if isinstance(message, Event):
                    yield message
    except (OSError, ValueError) as error:
        raise _gone(record) from error


@contextlib.asynccontextmanager
async def _connected(record: SessionRecord) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(record.socket, limit=json_lines.MAX_BYTES)
    try:
        yield reader, writer
    finally:
        writer.close()


def _gone(record: SessionRecord) -> SessionError:
    if not record.is_here:
        return SessionError(
            f"Session {record.id} runs on another machine, {record.host}.", hint="Log in there to see it or to end it."
        )
    if record.place and registry.read(record.id) is not None:
        return verdict(dataclasses.replace(record, supervisor=registry.CUT_OFF), SessionCommand.USE).error()
    return SessionError(
        f"The supervisor of session {record.id} has ended.",
        hint="pathways-jupyter clean removes what it may have left behind.",
    )


def silent(record: SessionRecord, method: Method, patience: float) -> SessionError:
    """Return the error for a supervisor that has not answered within `patience` seconds."""
    return SessionError(
        f"The supervisor of session {record.id} did not answer {method} within {patience:.0f} s.",
        hint=f"Its log: {record.log}",
    )
