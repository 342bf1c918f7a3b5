import asyncio

import pytest

from pathways_jupyter.errors import ApiError, ClusterError
from pathways_jupyter.kube import objects, pods, websocket
from pathways_jupyter.kube.objects import PODS

DEADLINE = 60.0

# Prints a line for every line that is written into the fifo.
TALK = """
import os
os.mkfifo("orders")
print("ready", flush=True)
while True:
    with open("orders") as orders:
        for line in orders:
            if line.strip() == "end":
                raise SystemExit
            print(line.strip(), flush=True)
"""


class Reader:
    """Reads a followed log line by line."""

    def __init__(self, client, name, **options):
        self.lines = pods.logs(client, name, namespace="default", follow=True, **options)

    async def next(self):
        async with asyncio.timeout(DEADLINE):
            return await anext(self.lines)

    async def rest(self):
        async with asyncio.timeout(DEADLINE):
            return [line async for line in self.lines]


async def say(client, name, *lines):
    text = "".join(f"{line}\n" for line in lines).encode()
    command = ["dd", "of=orders", "status=none"]
    done = await pods.run(client, name, command, namespace="default", stdin=text)
    # The container may end, and its commands with it, before this one has.
    assert done.exit_code == 0 or lines[-1] == "end"


async def test_a_log_is_read_whole_or_from_its_end(bench):
    async with bench.client() as client:
        await bench.pod(client, "p", "python", "-c", "print('\\n'.join(map(str, range(5000))))")
        await bench.until(client, "p", lambda pod: pod["status"]["phase"] == "Succeeded")
        whole = [line async for line in pods.logs(client, "p", namespace="default")]
        assert whole == [str(i) for i in range(5000)]
        assert [line async for line in pods.logs(client, "p", namespace="default", tail=2)] == ["4998", "4999"]


async def test_a_followed_log_ends_with_its_container(bench):
    async with bench.client() as client:
        await bench.pod(client, "p", "python", "-c", TALK)
        reader = Reader(client, "p")
        assert await reader.next() == "ready"
        await say(client, "p", "one", "two", "end")
        assert await reader.rest() == ["one", "two"]


async def test_a_followed_log_goes_on_after_the_server_restarted(bench):
    async with bench.client() as client:
        await bench.pod(client, "p", "python", "-c", TALK)
        reader = Reader(client, "p")
        assert await reader.next() == "ready"
        for round_ in range(3):
            await say(client, "p", *(f"{round_}-{i}" for i in range(20)))
            assert [await reader.next() for _ in range(10)] == [f"{round_}-{i}" for i in range(10)]
            await bench.restart()
            assert [await reader.next() for _ in range(10)] == [f"{round_}-{i}" for i in range(10, 20)]
        await say(client, "p", "end")
        assert await reader.rest() == []


async def test_a_followed_log_ends_when_its_pod_is_deleted(bench):
    async with bench.client() as client:
        await bench.pod(client, "p", "python", "-c", TALK)
        reader = Reader(client, "p")
        assert await reader.next() == "ready"
        await objects.delete(client, PODS, "p", namespace="default", grace_seconds=0)
        assert await reader.rest() == []


@pytest.mark.parametrize("follow", [False, True])
async def test_the_log_of_a_pod_that_is_not_there_is_reported(bench, follow):
    async with bench.client() as client:
        with pytest.raises(ApiError) as raised:
            await anext(pods.logs(client, "missing", namespace="default", follow=follow))
    assert raised.value.status == 404


async def test_a_command_runs_in_a_container_and_returns_its_exit_code(bench):
    async with bench.client() as client:
        await bench.pod(client, "p", "sleep", "600")
        script = "import sys; print(sys.stdin.read().upper()); sys.stderr.write('oh'); sys.exit(3)"
        async with asyncio.timeout(DEADLINE):
            done = await pods.run(client, "p", ["python", "-c", script], namespace="default", stdin=b"hello")
        assert (done.exit_code, done.stdout, done.stderr) == (3, b"HELLO\n", b"oh")


async def test_large_output_arrives_whole(bench):
    async with bench.client() as client:
        await bench.pod(client, "p", "sleep", "600")
        script = "import sys; sys.stdout.write('x' * 8_000_000)"
        async with asyncio.timeout(DEADLINE):
            done = await pods.run(client, "p", ["python", "-c", script], namespace="default")
        assert (done.exit_code, len(done.stdout)) == (0, 8_000_000)


async def test_whatever_a_command_reads_reaches_it_unchanged(bench):
    async with bench.client() as client:
        await bench.pod(client, "p", "sleep", "600")
        for content in (bytes(range(256)) * 2000, b""):
            done = await pods.run(client, "p", ["cat"], namespace="default", stdin=content)
            assert (done.exit_code, done.stdout) == (0, content)


async def test_a_program_that_is_not_there_is_reported(bench):
    async with bench.client() as client:
        await bench.pod(client, "p", "sleep", "600")
        with pytest.raises(ClusterError):
            await pods.run(client, "p", ["no-such-program"], namespace="default")


async def test_a_server_that_goes_while_a_command_runs_is_noticed_at_once(bench, monkeypatch):
    monkeypatch.setattr(websocket, "PING_SECONDS", 1e6)
    async with bench.client() as client:
        await bench.pod(client, "p", "sleep", "600")
        task = asyncio.create_task(pods.run(client, "p", ["sleep", "600"], namespace="default"))
        await pods.run(client, "p", ["true"], namespace="default")
        await bench.server.stop()
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(ClusterError):
                await task
        await bench.server.start()
