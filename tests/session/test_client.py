"""Requests to a supervisor, as other processes make them."""

import asyncio
import contextlib
import time
from pathlib import Path

import pytest
from session_records import new_record

from pathways_jupyter.base.errors import SessionError
from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.session import client, registry
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.session.supervisor import control_socket
from pathways_jupyter.session.supervisor.session_log import History


@contextlib.asynccontextmanager
async def ending(record, left, reported):
    """A supervisor that cannot reach the cluster, says so when it is asked to end, and ends once `reported`."""
    history = History()
    history.add(Event(EventKind.WARNING, "Of another time.", time.time() - 60, {}))

    async def handle(request, connection):
        if request.method is Method.EVENTS:
            history.listen(connection.writer)
            return None
        if request.method is Method.DISCONNECT:
            history.add(Event(EventKind.WARNING, "The proxy cannot be removed yet.", time.time(), {}))
            await reported.wait()
            return {"left": left}
        return record.to_json()

    server = await control_socket.listen(Path(record.socket), handle, lambda connection: None)
    registry.write(record)
    try:
        yield
    finally:
        server.close()
        registry.remove(record)


@pytest.mark.parametrize("left", ["", "The API server does not answer."])
async def test_a_session_has_ended_if_nothing_of_it_is_left(left):
    record, said, reported = new_record(), [], asyncio.Event()

    def report(reason):
        said.append(reason)
        reported.set()

    async with ending(record, left, reported):
        if left:
            with pytest.raises(SessionError, match=f"not all of it could be removed: {left}"):
                await client.end(record, report)
        else:
            await client.end(record, report)
    assert said == ["The proxy cannot be removed yet."]
