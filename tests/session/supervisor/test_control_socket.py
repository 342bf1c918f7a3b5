"""The supervisor's side of its control socket, against clients that do what they should not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import holders
import psutil
import pytest

from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.session import client, protocol, registry
from pathways_jupyter.session.kernel.supervisor_link import SupervisorLink
from pathways_jupyter.session.protocol import Method, Request
from pathways_jupyter.session.registry import SessionRecord
from pathways_jupyter.session.supervisor import control_socket, session_log
from pathways_jupyter.session.supervisor.session_log import History

DEADLINE = 60.0
HOSTILE = [
    b"[" * 100_000,
    b'{"id": 1e400, "method": "status"}',
    b'{"id": 1, "method": "status", "params": {"a": ' + b"[" * 100_000 + b"}}",
    "ça".encode("latin-1"),
    b"\xf0\x9f",
    b"\0" * 1000,
]


@pytest.fixture
def session(config) -> SupervisorLink:
    link, _ = holders.start(config(1))
    yield link
    assert link.close(patience=DEADLINE)


def record_of(link: SupervisorLink) -> SessionRecord:
    record = registry.read(link.session)
    assert record is not None
    return record


def test_hostile_input_is_answered_with_an_error_and_the_connection_goes_on(session):
    record = record_of(session)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(DEADLINE)
        connection.connect(record.socket)
        answers = connection.makefile("rb")
        for line in HOSTILE:
            connection.sendall(line + b"\n")
            answer = protocol.decode(answers.readline())
            assert "Not a message" in str(answer.error)
        connection.sendall(protocol.encode(Request(7, Method.STATUS)))
        assert protocol.decode(answers.readline()).result["pid"] == record.pid
    assert "Traceback" not in Path(record.log).read_text(encoding="utf-8")


@pytest.mark.thorough
def test_a_client_that_never_reads_is_held_up_and_keeps_no_other_from_an_answer(session):
    record = record_of(session)
    process = psutil.Process(record.pid)
    before = process.memory_info().rss
    flood = protocol.encode(Request(1, Method.STATUS)) * 500_000
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.settimeout(1.0)
        deaf.connect(record.socket)
        # The supervisor stops reading, and then the kernel of the operating system stops taking.
        with pytest.raises(TimeoutError):
            deaf.sendall(flood)
        assert client.request(record, Method.STATUS)["pid"] == record.pid
        assert process.memory_info().rss - before < 16 << 20
    assert client.request(record, Method.STATUS)["pid"] == record.pid


@contextlib.asynccontextmanager
async def serving(path: Path, handle: control_socket.Handler) -> AsyncIterator[list[control_socket.ControlConnection]]:
    ended: list[control_socket.ControlConnection] = []
    server = await control_socket.listen(path, handle, ended.append)
    try:
        yield ended
    finally:
        server.close()


async def test_requests_beyond_a_number_wait_until_others_are_answered(tmp_path):
    path, begun, release = tmp_path / "s.sock", asyncio.Queue[int](), asyncio.Event()

    async def handle(request: Request, connection: control_socket.ControlConnection) -> int:
        begun.put_nowait(request.id)
        await release.wait()
        return request.id

    async with serving(path, handle), asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_unix_connection(path)
        for number in range(100):
            writer.write(protocol.encode(Request(number, Method.STATUS)))
        for _ in range(control_socket.MAX_CONCURRENT_REQUESTS):
            await begun.get()
        # All that was written has arrived, and nothing of it is looked at.
        assert begun.empty()
        release.set()
        answered = [protocol.decode(await reader.readline()).id for _ in range(100)]
        assert sorted(answered) == list(range(100))
        writer.close()


async def test_a_listener_that_never_reads_is_disconnected_beyond_a_bound_and_the_owner_is_not(monkeypatch):
    monkeypatch.setattr(session_log, "UNREAD_BYTES", 1 << 20)
    listeners = History()
    pairs = [socket.socketpair() for _ in range(2)]
    (_, owner), (_, other) = [await asyncio.open_connection(sock=near) for near, _ in pairs]
    listeners.listen(owner, owner=True)
    listeners.listen(other)
    for _ in range(100):
        listeners.add(Event(EventKind.WARNING, "x" * 100_000))
    assert other.is_closing()
    assert not owner.is_closing()
    for writer in (owner, other):
        assert writer.transport.get_write_buffer_size() <= 2 << 20
        writer.transport.abort()
    for _, far in pairs:
        far.close()
