import asyncio

import pytest

from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.kube import execute, objects, pods
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
    script = 'printf "%s\\n" "$@" > orders'
    done = await execute.run(client, name, ["sh", "-c", script, "sh", *lines], namespace="default")
    # The container may end, and its commands with it, before this one has.
    assert done.exit_code == 0 or lines[-1] == "end"


async def test_a_log_is_read_whole_or_from_its_end(bench, client):
    await bench.pod(client, "p", "python", "-c", "print('\\n'.join(map(str, range(5000))))")
    await bench.until(client, "p", lambda pod: pod["status"]["phase"] == "Succeeded")
    whole = [line async for line in pods.logs(client, "p", namespace="default")]
    assert whole == [str(i) for i in range(5000)]
    assert [line async for line in pods.logs(client, "p", namespace="default", tail=2)] == ["4998", "4999"]


async def test_a_followed_log_ends_with_its_container(bench, client):
    await bench.pod(client, "p", "python", "-c", TALK)
    reader = Reader(client, "p")
    assert await reader.next() == "ready"
    await say(client, "p", "one", "two", "end")
    assert await reader.rest() == ["one", "two"]


async def test_a_followed_log_goes_on_after_the_server_restarted(bench, client):
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


async def test_a_followed_log_ends_when_its_pod_is_deleted(bench, client):
    await bench.pod(client, "p", "python", "-c", TALK)
    reader = Reader(client, "p")
    assert await reader.next() == "ready"
    await objects.delete(client, PODS, "p", namespace="default", grace_seconds=0)
    assert await reader.rest() == []


@pytest.mark.parametrize("follow", [False, True])
async def test_the_log_of_a_pod_that_is_not_there_is_reported(client, follow):
    with pytest.raises(ApiError) as raised:
        await anext(pods.logs(client, "missing", namespace="default", follow=follow))
    assert raised.value.status == 404
