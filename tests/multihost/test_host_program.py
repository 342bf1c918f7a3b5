"""The programs on a host and the client's end of them, over the pipes of a process instead of a network."""

import asyncio
import contextlib
import os
import sys

import pytest
from waits import wait_until

from pathways_jupyter.multihost import host_connections, hostrun
from pathways_jupyter.multihost.errors import RemoteHostError
from pathways_jupyter.multihost.host_program import Program
from pathways_jupyter.multihost.output import HostLog
from pathways_jupyter.multihost.pack import Sending
from pathways_jupyter.multihost.remote import keeper
from pathways_jupyter.multihost.remote.request_loop import ALIVE, STOP
from pathways_jupyter.multihost.run_events import HostPhase
from pathways_jupyter.multihost.targets import Target

DEADLINE = 60.0
HERE = Target("here")


class Pipes:
    """A channel to a process of this machine."""

    def __init__(self, process):
        self.process = process

    async def write(self, data):
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

    async def complaint(self):
        return b""


class Machine:
    """A host whose home directory is `home`."""

    def __init__(self, home):
        self.home = home

    async def start(self, command):
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        environ = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        return Pipes(await asyncio.create_subprocess_exec(sys.executable, *command[1:], env=environ, **pipes))

    async def close(self):
        pass

    @contextlib.asynccontextmanager
    async def program(self):
        async with asyncio.timeout(DEADLINE):
            running = await Program.start(HERE, self)
            try:
                yield running
            finally:
                await running.close()

    async def start_run(self, command, **spec):
        (self.home / "run").mkdir(exist_ok=True)
        spec = {"cwd": "run", "env": {}, "grace": 0.5, "lease": 60.0, "limit": 64 << 20, "command": command, **spec}
        spec |= {"chips": [], "free": False}
        async with self.program() as program:
            await program.ask("start", run="id", spec=spec)


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "home").mkdir()
    return Machine(tmp_path / "home")


@pytest.fixture
def code(tmp_path):
    made = tmp_path / "code"
    made.mkdir()
    for number in range(8):
        (made / f"file{number}").write_bytes(os.urandom(300_000))
    return made


async def send(machine, code, tmp_path):
    """Return the states of a host to which `code` was sent."""
    states = []

    async def publish(event):
        states.append(event.status)

    async def connect(target):
        return machine

    connections = host_connections.Connections(connect)
    log = HostLog(tmp_path / "log")
    host = hostrun.HostRun(HERE, "attempt", connections, log, publish)
    with Sending(code) as sending:
        await host.prepare(sending, "run")
    await host.close()
    return states


async def test_what_cannot_be_written_is_said(machine, code, tmp_path):
    (machine.home / "run").write_text("a file where the directory belongs")
    states = await send(machine, code, tmp_path)
    assert states[-1].phase is HostPhase.FAILED
    assert states[-1].message.startswith("here: File exists (")
    (machine.home / "run").unlink()
    assert (await send(machine, code, tmp_path))[-1].phase is HostPhase.READY


async def test_a_client_that_reads_slowly_keeps_its_run_alive(machine):
    await machine.start_run("cat /dev/zero", lease=60.0)
    client = machine.home / ".pathways-jupyter" / "runs" / "id" / keeper.CLIENT
    async with machine.program() as program:
        await program.ask("follow", run="id", offset=0)
        os.utime(client, (0, 0))
        # Nothing is read any more, so that the program's output is full; a sign of life arrives anyway.
        await program.write(ALIVE)
        await asyncio.to_thread(wait_until, lambda: client.stat().st_mtime)
        await program.write(STOP)
    await asyncio.to_thread(wait_until, lambda: keeper.outcome(str(client.parent)))


async def test_what_is_no_answer_is_explained(machine):
    class Greeting:
        async def read(self):
            return b"Welcome to this host!\n"

        async def write(self, data):
            pass

        async def close(self):
            pass

    with pytest.raises(RemoteHostError, match="Welcome to this host!") as error:
        await Program(HERE, None, Greeting()).answer()
    assert "must print nothing" in error.value.hint
