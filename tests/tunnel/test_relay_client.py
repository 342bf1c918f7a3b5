"""Streams to a pod by its relay, through an API server that goes away, with the relay that a proxy's pod has."""

from __future__ import annotations

import asyncio
import os
from hashlib import sha256
from pathlib import Path

import echo
import pytest
from waits import wait_until

from benchmarks.link import Link
from pathways_jupyter.base.errors import ClusterError, ConnectionLost
from pathways_jupyter.kube import auth, objects, websocket
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.tunnel import resumable_stream
from pathways_jupyter.tunnel.carrier import Carrier, PodPort, PortRefused
from pathways_jupyter.tunnel.local_connection import READ_BYTES
from pathways_jupyter.tunnel.open_carrier import StreamLost, TooManyStreams
from pathways_jupyter.tunnel.outage import Outage
from pathways_jupyter.tunnel.relay import relay_container
from pathways_jupyter.tunnel.relay.main import MAX_STREAMS
from pathways_jupyter.tunnel.relay.relay_container import RelaySpec
from pathways_jupyter.tunnel.resumable_stream import RelayClient, ResumableStream

DEADLINE = 60.0
PORT = echo.PORT
SECRET = bytes(range(32))
COUNT = """connection.sendall(b"ready")
    size = 0
    while data := connection.recv(262144):
        size += len(data)
        if data.endswith(b"?"):
            connection.sendall(b"%d" % size)
"""
MEGABYTE = 1024 * 1024


class Pod:
    """A pod that echoes, with a relay beside it, and a client of the relay."""

    def __init__(self, bench, client) -> None:
        self.bench, self.client = bench, client
        self.interrupted: list[str] = []
        self.is_interrupted, self.is_restored = asyncio.Event(), asyncio.Event()
        self.restored: list[float] = []
        self._made: list[RelayClient] = []

    async def start(self, greeting: str = "pass") -> None:
        relay = relay_container.container(RelaySpec(sha256(SECRET).hexdigest(), "python:3"), PORT)
        await self.bench.pod(self.client, "proxy", *echo.command(greeting), initContainers=[relay])

    def relay(self, *, secret: bytes = SECRET, keep: float = DEADLINE, port: int = 0) -> RelayClient:
        async def reload(_error: ClusterError) -> None:
            """Stay at the same server."""

        target = PodPort(self.client, "default", "proxy", port or relay_container.port_of(PORT))

        def interrupted(reason: str) -> None:
            self.interrupted.append(reason)
            self.is_interrupted.set()

        def restored(seconds: float) -> None:
            self.restored.append(seconds)
            self.is_restored.set()

        self._made.append(RelayClient(target, secret, keep, Outage(interrupted, restored, reload)))
        return self._made[-1]

    async def opened(self, relay: RelayClient) -> ResumableStream:
        """Open a stream, once the pod's programs listen."""
        while True:
            try:
                return await relay.open()
            except PortRefused:
                await asyncio.sleep(0.05)

    def behind(self, link: Link) -> None:
        """Reach the API server over a link from now on."""
        self.client = Client(auth.load(str(link.write(self.bench.directory / "over-link"))))

    async def close(self) -> None:
        for each in self._made:
            await each.close()
        self.client.close()


class Received:
    """Bytes that arrive on a stream."""

    def __init__(self, stream: ResumableStream | Carrier) -> None:
        self.data = bytearray()
        self._more = asyncio.Event()
        self.over = asyncio.create_task(stream.deliver(self._take))

    async def _take(self, data: memoryview) -> None:
        self.data += data
        self._more.set()

    async def until(self, size: int) -> None:
        while len(self.data) < size:
            self._more.clear()
            await self._more.wait()


@pytest.fixture
async def pod(bench):
    made = Pod(bench, bench.client())
    async with asyncio.timeout(DEADLINE):
        yield made
    await made.close()


async def test_a_stream_goes_on_where_its_carrier_broke(pod):
    await pod.start()
    stream = await pod.opened(pod.relay())
    received, sent = Received(stream), bytearray()
    for _ in range(4):
        data = os.urandom(1_500_000)
        sent += data
        sending = asyncio.create_task(stream.send(data))
        # Anywhere in between: some of it has arrived, some is on its way in either direction.
        await received.until(len(sent) - 1_200_000)
        await pod.bench.restart()
        await sending
    await received.until(len(sent))
    assert received.data == sent
    assert stream.error is None
    # All may have come back before the last carrier broke.
    await stream.send(b"end")
    await received.until(len(sent) + 3)
    assert len(pod.interrupted) == len(pod.restored)
    stream.close()
    await received.over
    assert stream.error is None


async def test_a_stream_whose_carrier_is_cut_on_purpose_goes_on_with_another(pod):
    await pod.start()
    relay = pod.relay()
    received = Received(await pod.opened(relay))
    (stream,) = relay._streams
    data = os.urandom(1_500_000)
    sending = asyncio.create_task(stream.send(data))
    await received.until(len(data) - 1_200_000)
    assert relay.cut() == 1
    await sending
    await received.until(len(data))
    assert received.data == data
    assert stream._end.attempt == 2


async def test_a_stream_that_is_opened_during_an_interruption_waits_for_its_end(pod):
    await pod.start()
    relay = pod.relay()
    (await pod.opened(relay)).close()
    await pod.bench.server.stop()
    opening = asyncio.create_task(relay.open())
    await pod.is_interrupted.wait()
    assert not opening.done()
    await pod.bench.server.start()
    stream = await opening
    await stream.send(b"late")
    received = Received(stream)
    await received.until(4)
    # The other one too, whose end is not confirmed yet.
    await pod.is_restored.wait()
    assert len(pod.restored) == len(pod.interrupted) == 1


async def test_a_tunnel_that_is_closed_during_an_interruption_is_not_said_to_be_restored(pod):
    """As by a reconnect: the arrays are lost with the proxy, and not kept."""
    await pod.start()
    relay = pod.relay()
    await pod.opened(relay)
    await pod.bench.server.stop()
    await pod.is_interrupted.wait()
    await relay.close()
    assert pod.restored == []
    await pod.bench.server.start()


async def test_a_carrier_that_waits_for_the_local_program_is_not_taken_for_a_dead_one(pod, monkeypatch):
    """More than is kept has arrived before there is a program: nothing is read, so no ping is answered."""
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.1)
    # While data still come, a busy machine may be silent for longer than these pings.
    enough = websocket.UNANSWERED_PINGS
    monkeypatch.setattr(websocket, "UNANSWERED_PINGS", float("inf"))
    await pod.start('connection.sendall(b"x" * 2_000_000)')
    stream, pinged = await pod.opened(pod.relay()), asyncio.Semaphore(0)
    await asyncio.to_thread(wait_until, lambda: stream._inbox.is_waiting)
    monkeypatch.setattr(websocket, "UNANSWERED_PINGS", enough)
    monkeypatch.setattr(stream._end, "ping", lambda _number: pinged.release())
    for _ in range(enough + 2):
        await pinged.acquire()
    assert stream._inbox.is_waiting
    assert stream._end.attempt == 1
    await Received(stream).until(2_000_000)


@pytest.fixture
def full_line(bench, monkeypatch):
    """A line of 1 Mbit/s behind a proxy that takes 5 MB at once; all times are a quarter, so it is four times as fast.

    What the proxy has taken drains for five times as long as a connection may be silent.
    """
    monkeypatch.setattr(websocket, "PING_SECONDS", websocket.PING_SECONDS / 4)
    with Link(Path(bench.kubeconfig()), up=MEGABYTE // 2, queue=5 * MEGABYTE) as link:
        yield link


@pytest.mark.thorough
@pytest.mark.parametrize("relay", [True, False])
async def test_a_line_that_is_full_is_not_taken_for_a_dead_one(pod, full_line, relay):
    await pod.start(COUNT)
    (await pod.opened(pod.relay())).close()
    pod.behind(full_line)
    opens = pod.relay().open if relay else lambda: Carrier.open(PodPort(pod.client, "default", "proxy", PORT))
    # The second one, as JAX has for what is no data, sends nothing, and waits behind the first one's.
    stream, idle = await opens(), await opens()
    received, size = Received(stream), 6 * MEGABYTE
    others = Received(idle)
    await received.until(len(b"ready"))
    for _ in range(size // READ_BYTES - 1):
        await stream.send(bytes(READ_BYTES))
    await stream.send(bytes(READ_BYTES - 1) + b"?")
    arrives = asyncio.create_task(received.until(len(b"ready6291456")))
    await asyncio.wait({arrives, received.over}, return_when=asyncio.FIRST_COMPLETED)
    assert (stream.error, idle.error) == (None, None)
    assert received.data == b"ready%d" % size
    assert others.data == b"ready"
    assert pod.interrupted == []


@pytest.fixture
async def link(pod, bench, monkeypatch):
    """A link that leads to the pod; a silence is noticed four times as fast."""
    monkeypatch.setattr(websocket, "PING_SECONDS", websocket.PING_SECONDS / 4)
    await pod.start()
    with Link(Path(bench.kubeconfig())) as made:
        pod.behind(made)
        yield made


async def test_after_a_silence_no_connection_of_before_it_is_used(pod, link, monkeypatch):
    """The ones that wait for a request are as dead, and an attempt on one of them would end with its patience only."""
    monkeypatch.setattr(resumable_stream, "OPEN_SECONDS", 1e6)
    received = Received(stream := await pod.opened(pod.relay()))
    await pod.client.open(3)
    link.forget()
    await stream.send(b"late")
    await received.until(4)
    assert stream._end.attempt == 2
    # Too short to be reported.
    assert pod.interrupted == []


async def test_a_program_that_sends_a_little_all_the_time_does_not_hide_a_silence(pod, link):
    """As a front end's heartbeat, which a proxy on the way acknowledges although nothing is forwarded."""
    received = Received(stream := await pod.opened(pod.relay()))
    link.forget()

    async def send() -> int:
        sent = 0
        while stream._end.attempt == 1:
            await stream.send(b"beat")
            sent += 4
            await asyncio.sleep(0.005)
        return sent

    await received.until(await send())
    assert bytes(received.data[:8]) == b"beatbeat"


async def test_a_stream_is_lost_when_there_is_no_carrier_for_too_long(pod):
    await pod.start()
    stream = await pod.opened(pod.relay(keep=0.5))
    received = Received(stream)
    await pod.bench.server.stop()
    await received.over
    assert "could not be reached for 0 s" in str(stream.error)
    with pytest.raises(ConnectionLost):
        await stream.send(b"more")
    await pod.bench.server.start()


async def test_a_stream_is_lost_with_its_pod(pod):
    await pod.start()
    stream = await pod.opened(pod.relay())
    received = Received(stream)
    await objects.delete(pod.client, PODS, "proxy", namespace="default", grace_seconds=0)
    await received.over
    assert "pod is gone" in str(stream.error)


async def test_a_client_without_the_secret_is_sent_away(pod):
    await pod.start()
    (await pod.opened(pod.relay())).close()
    with pytest.raises(ConnectionLost):
        await pod.relay(secret=b"x" * 32).open()


async def test_a_full_relay_refuses_further_streams_and_keeps_those_that_it_has(pod):
    await pod.start()
    relay = pod.relay()
    first = await pod.opened(relay)
    await asyncio.gather(*(relay.open() for _ in range(MAX_STREAMS - 1)))
    with pytest.raises(TooManyStreams):
        await relay.open()
    await first.send(b"still here")
    await Received(first).until(10)


@pytest.mark.parametrize(
    ("greeting", "problem"),
    [('connection.sendall(b"x" * 64)', "do not agree"), ("pass", "no longer has the connection")],
    ids=["noise", "unknown"],
)
async def test_what_is_no_relays_answer_ends_the_attempt(pod, greeting, problem):
    """The program itself, at whose port no relay listens; without a greeting it sends the hello back."""
    await pod.start(greeting)
    relay = pod.relay(secret=b"\x09" * 32, port=PORT)
    with pytest.raises(StreamLost, match=problem):
        await pod.opened(relay)
