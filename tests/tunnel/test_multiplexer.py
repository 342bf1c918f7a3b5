"""Many connections on one stream: what one of them does must not change what the others see."""

import asyncio
import contextlib
import os

import pytest

from pathways_jupyter.base.errors import ConnectionLost
from pathways_jupyter.tunnel.multiplexer import WINDOW_BYTES, Multiplexer

DEADLINE = 30.0


class Pair:
    """Two ends whose bytes reach each other in pieces of any size."""

    def __init__(self, piece=10_000):
        self.piece, self.accepted, self.messages = piece, asyncio.Queue(), asyncio.Queue()
        self.sent = 0
        self.near = Multiplexer(self.to_far)
        self.far = Multiplexer(self.to_near, accept=self.accept, take=self.messages.put_nowait)

    async def to_far(self, data):
        await self.feed(self.far, data)

    async def to_near(self, data):
        self.sent += len(data)
        await self.feed(self.near, data)

    async def feed(self, end, data):
        for at in range(0, len(data), self.piece):
            end.feed(data[at : at + self.piece])
            await asyncio.sleep(0)

    def accept(self, channel, request):
        self.accepted.put_nowait((channel, request))

    async def opened(self, request):
        channel = self.near.open(request)
        async with asyncio.timeout(DEADLINE):
            there, asked = await self.accepted.get()
        assert asked == request
        return channel, there


async def receive(channel, count):
    """Return the next `count` bytes of a channel, or fewer at its end."""
    found = bytearray()

    class Enough(Exception):
        pass

    async def take(data):
        found.extend(data)
        if len(found) >= count:
            raise Enough

    async with asyncio.timeout(DEADLINE):
        with contextlib.suppress(Enough):
            await channel.deliver(take)
    return bytes(found)


@pytest.fixture(params=[1, 7, 100_000])
async def pair(request):
    made = Pair(request.param)
    yield made
    await made.near.close()
    await made.far.close()


async def test_bytes_and_messages_arrive_in_their_order(pair):
    one, there_one = await pair.opened({"socket": "shell"})
    two, there_two = await pair.opened({"port": 8888})
    data = os.urandom(3000)
    await asyncio.gather(one.send(data), two.send(data[::-1]), there_one.send(b"answer"))
    pair.near.post({"message": 1})
    pair.near.post({"message": 2})
    assert await receive(there_one, len(data)) == data
    assert await receive(there_two, len(data)) == data[::-1]
    assert await receive(one, 6) == b"answer"
    assert [await pair.messages.get(), await pair.messages.get()] == [{"message": 1}, {"message": 2}]


async def test_a_reader_that_stops_keeps_only_its_own_sender_waiting():
    pair = Pair()
    slow, there_slow = await pair.opened({"socket": "iopub"})
    fast, there_fast = await pair.opened({"socket": "control"})
    sending = asyncio.create_task(there_slow.send(bytes(5 * WINDOW_BYTES)))
    await asyncio.sleep(0.05)
    # `slow` is not read, so no more than its window is on the way, and another channel is not behind it.
    assert not sending.done()
    assert pair.sent < WINDOW_BYTES * 1.1
    await there_fast.send(b"reply")
    assert await receive(fast, 5) == b"reply"
    assert len(await receive(slow, 5 * WINDOW_BYTES)) == 5 * WINDOW_BYTES
    await sending
    await pair.near.close()
    await pair.far.close()


async def test_what_was_sent_before_a_close_arrives(pair):
    channel, there = await pair.opened({})
    await there.send(b"last words")
    there.close()
    assert await receive(channel, 100) == b"last words"
    assert channel.ended
    assert channel.error is None
    channel.close()
    with pytest.raises(ConnectionLost):
        await channel.send(b"too late")


async def test_the_end_of_the_stream_is_the_end_of_each_channel():
    pair = Pair()
    channel, _ = await pair.opened({})
    receiving = asyncio.create_task(receive(channel, 100))
    await asyncio.sleep(0)
    await pair.near.close(ConnectionLost("The pod is gone."))
    assert await receiving == b""
    assert str(channel.error) == "The pod is gone."
    with pytest.raises(ConnectionLost, match="The pod is gone"):
        pair.near.open({})
    await pair.far.close()


async def test_bytes_of_another_version_are_an_error():
    pair = Pair()
    with pytest.raises(ConnectionLost, match="different versions"):
        pair.far.feed(b"HTTP/1.1 400 Bad Request")
    await pair.near.close()
    await pair.far.close()
