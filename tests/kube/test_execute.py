"""Commands in containers of a real kubelet."""

import asyncio

import pytest

from pathways_jupyter.base.errors import ClusterError
from pathways_jupyter.kube import execute, websocket

DEADLINE = 60.0


async def test_a_command_runs_in_a_container_and_returns_its_exit_code(bench, client):
    await bench.pod(client, "p", "sleep", "600")
    script = "import sys; print('HELLO'); sys.stderr.write('oh'); sys.exit(3)"
    async with asyncio.timeout(DEADLINE):
        done = await execute.run(client, "p", ["python", "-c", script], namespace="default")
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"HELLO\n", b"oh")


async def test_output_has_a_bound_beyond_which_the_command_is_refused(bench, client, monkeypatch):
    monkeypatch.setattr(execute, "MAX_OUTPUT_BYTES", 1024**2)
    await bench.pod(client, "p", "sleep", "600")
    async with asyncio.timeout(DEADLINE):
        done = await execute.run(client, "p", ["head", "-c", str(1024**2), "/dev/zero"], namespace="default")
        assert len(done.stdout) == 1024**2
        with pytest.raises(ClusterError, match="head in pod p printed more than 1 MiB") as refused:
            await execute.run(client, "p", ["head", "-c", str(1024**2 + 1), "/dev/zero"], namespace="default")
    assert refused.value.hint == "Redirect its output to a file."


async def test_whatever_a_command_reads_reaches_it_unchanged(bench, client):
    await bench.pod(client, "p", "sleep", "600")
    content = bytes(range(256)) * 2000
    command = ["head", "-c", str(len(content))]
    running = await execute.execute(client, "p", command, namespace="default")
    writing = asyncio.create_task(running.write(content))
    received = bytearray()
    async with asyncio.timeout(DEADLINE):
        while data := await running.read():
            received += data
        await writing
    running.close()
    assert (running.exit_code, bytes(received)) == (0, content)


async def test_a_program_that_is_not_there_is_reported(bench, client):
    await bench.pod(client, "p", "sleep", "600")
    with pytest.raises(ClusterError, match="could not be run"):
        await execute.run(client, "p", ["no-such-program"], namespace="default")


async def test_a_server_that_goes_while_a_command_runs_is_noticed_at_once(bench, client, monkeypatch):
    monkeypatch.setattr(websocket, "PING_SECONDS", 1e6)
    await bench.pod(client, "p", "sleep", "600")
    task = asyncio.create_task(execute.run(client, "p", ["sleep", "600"], namespace="default"))
    await execute.run(client, "p", ["true"], namespace="default")
    await bench.server.stop()
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(ClusterError):
            await task
    await bench.server.start()
