"""The program on a host and the client's end of one connection, over the pipes of a process instead of a network."""

import asyncio
import contextlib
import os
import sys
import threading

import pytest
from waits import wait_until

from pathways_jupyter.multihost.errors import HostError, HostUnreachable
from pathways_jupyter.multihost.hostsession import HostSession, Outcome
from pathways_jupyter.multihost.pack import Sending
from pathways_jupyter.multihost.remote import keeper, serve
from pathways_jupyter.multihost.remote.frames import encode
from pathways_jupyter.multihost.targets import Target

DEADLINE = 60.0


class Pipes:
    """A channel to a process of this machine; it breaks after `room` bytes."""

    def __init__(self, process, room=1 << 40):
        self.process, self.room = process, room

    async def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            self.process.stdin.close()
            raise HostUnreachable("cut")
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def read(self):
        return await self.process.stdout.read(1 << 16)

    async def close(self):
        self.process.stdin.close()
        async with asyncio.timeout(DEADLINE):
            # asyncio reports the end of a process only when its pipes are empty.
            while await self.read():
                pass
            assert await self.process.wait() == 0

    def complaint(self):
        return ""


@pytest.fixture
def opened(tmp_path):
    """Open a session with the program, whose home directory is `tmp_path`/home."""
    home = tmp_path / "home"
    home.mkdir()

    @contextlib.asynccontextmanager
    async def begin(room=1 << 40):
        async def connect(target, command):
            pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
            command = [sys.executable, *command[1:]]
            environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
            return Pipes(await asyncio.create_subprocess_exec(*command, env=environ, **pipes), room)

        async with asyncio.timeout(DEADLINE):
            session = await HostSession.open(Target("here"), connect)
            try:
                yield session
            finally:
                await session.close()

    return begin


@pytest.fixture
def code(tmp_path):
    made = tmp_path / "code"
    made.mkdir()
    for number in range(8):
        (made / f"file{number}").write_bytes(os.urandom(300_000))
    return made


async def send(session, code, shares=None):
    """Return the number of contents that the host lacked, and of files that it has written."""

    async def sent(share):
        (shares if shares is not None else []).append(share)

    with Sending(code) as sending:
        missing = await session.missing(await sending.packed(), "run", "attempt")
        return len(missing), await session.apply(await sending.archive(missing) if missing else None, sent)


async def test_a_directory_is_sent_and_then_only_what_differs(opened, code, tmp_path):
    shares = []
    async with opened() as session:
        assert session.python == ".".join(map(str, sys.version_info[:3]))
        assert await session.works()
        assert await send(session, code, shares) == (8, 8)
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
        (code / "file3").write_text("changed")
        assert await send(session, code) == (1, 1)
        assert session.idle
    async with opened() as session:
        assert await send(session, code) == (0, 0)
    for each in code.iterdir():
        assert (tmp_path / "home" / "run" / each.name).read_bytes() == each.read_bytes()


async def test_a_connection_that_is_cut_is_continued_by_the_next_one(opened, code, tmp_path):
    async with opened(room=1_500_000) as session:
        with pytest.raises(HostUnreachable):
            await send(session, code)
    assert not (tmp_path / "home" / "run").exists()
    async with opened() as session:
        missing, written = await send(session, code)
    assert 0 < missing < 8
    assert written == 8


async def test_what_cannot_be_written_is_said_and_the_connection_goes_on(opened, code, tmp_path):
    (tmp_path / "home" / "run").write_text("a file where the directory belongs")
    async with opened() as session:
        with pytest.raises(HostError, match=r"here: File exists \(.*/run\)"):
            await send(session, code)
        (tmp_path / "home" / "run").unlink()
        assert await send(session, code) == (8, 8)


async def test_a_run_is_started_followed_and_found_again(opened, tmp_path):
    (tmp_path / "home" / "run").mkdir()
    gate = tmp_path / "gate"
    command = f"echo up; while [ ! -e {gate} ]; do sleep 0.05; done; printf end; exit 3"
    spec = {"command": command, "cwd": "run", "env": {}, "grace": 0.5, "lease": 0.0, "limit": 1 << 20}
    async with opened() as session:
        with pytest.raises(HostError, match="there is no such directory"):
            await session.start({**spec, "run": "id", "cwd": "nowhere"})
        await session.start({**spec, "run": "id"})
        async for piece in session.follow("id", 0):
            assert piece == b"up\n"
            break
        assert not session.idle, "it would be kept for another run"
    async with opened() as session:
        assert await session.status("id") == (True, None)
        assert await session.status("other") == (False, None)
        gate.touch()
        found = [piece async for piece in session.follow("id", len("up\n"))]
        assert b"".join(found[:-1]) == b"end"
        assert isinstance(found[-1], Outcome)
        assert (found[-1].code, found[-1].why) == (3, "exited")
        assert await session.read("id", 1) == b"p\nend"
        with pytest.raises(HostError, match="does not know the run"):
            await anext(session.follow("other", 0))


async def test_a_client_that_reads_slowly_keeps_its_run_alive(opened, tmp_path):
    (tmp_path / "home" / "run").mkdir()
    spec = {"command": "cat /dev/zero", "cwd": "run", "env": {}, "grace": 0.1, "lease": 60.0, "limit": 64 << 20}
    async with opened() as session:
        await session.start({**spec, "run": "id"})
        assert await anext(session.follow("id", 0))
        client = tmp_path / "home" / ".pathways-jupyter" / "runs" / "id" / keeper.CLIENT
        os.utime(client, (0, 0))
        # Nothing is read any more, so that the program's output is full; the pings of the session arrive.
        await asyncio.to_thread(wait_until, lambda: client.stat().st_mtime)
        await session.stop("id")
        await asyncio.to_thread(wait_until, lambda: keeper.outcome(str(client.parent)))


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A server in a thread: its pipes, and what it has raised."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (source, ours), (theirs, sink) = os.pipe(), os.pipe()
    raised = []

    def run():
        try:
            serve.Server(source, sink).serve()
            raised.append(None)
        except ValueError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    yield thread, ours, raised
    for each in (source, ours, theirs, sink):
        with contextlib.suppress(OSError):
            os.close(each)


def test_a_silent_client_is_taken_for_gone(served, monkeypatch):
    monkeypatch.setattr(serve, "_SILENCE_SECONDS", 0.2)
    thread, _, raised = served
    thread.start()
    thread.join(DEADLINE)
    assert raised == [None]


def test_a_client_that_goes_while_it_sends_ends_the_program(served):
    thread, ours, raised = served
    os.write(ours, encode({"op": "ping"}) + encode({"op": "echo"})[:5])
    os.close(ours)
    thread.start()
    thread.join(DEADLINE)
    assert raised == [None]


def test_what_is_no_request_ends_the_program(served):
    thread, ours, raised = served
    os.write(ours, b"GET / HTTP/1.1\r\n\r\n")
    thread.start()
    thread.join(DEADLINE)
    assert "not a frame" in str(raised[0])
