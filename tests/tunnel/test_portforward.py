import asyncio
import contextlib
import gc
import os
import socket
import stat
import weakref

import echo
import numpy as np
import pytest
import uvloop

from pathways_jupyter.base.errors import ApiError, ClusterError, ConnectionLost
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import client as clients
from pathways_jupyter.kube import objects, websocket
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.kube.credentials import Fixed
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.tunnel import carrier, portforward
from pathways_jupyter.tunnel.carrier import PodPort, PortRefused

DEADLINE = 60.0


async def echo_pod(bench, client, name="echo", greeting="pass"):
    await bench.pod(client, name, *echo.command(greeting))
    return PodPort(client, "default", name, echo.PORT)


async def prepared(forward):
    """Prepare it once its port does not refuse any more: a program listens some time after its container starts."""
    async with asyncio.timeout(DEADLINE):
        async for _ in Backoff(0.02, 0.25):
            with contextlib.suppress(PortRefused):
                return await forward.prepare()


@contextlib.asynccontextmanager
async def forwarded(target, **options):
    """Forward to a pod's port, once its program listens."""
    forward = await portforward.listen(target, **options)
    try:
        await prepared(forward)
        yield forward
    finally:
        await forward.close()


def connect(forward):
    return asyncio.open_connection(*forward.address.split(":"))


async def test_listening_that_is_cancelled_at_any_moment_leaves_no_socket(tmp_path):
    target = PodPort(None, "default", "any", 7000)
    for turns in range(6):
        path = tmp_path / f"tunnel-{turns}"
        listening = asyncio.create_task(portforward.listen(target, path=path))
        for _ in range(turns):
            # One turn of the loop.
            await asyncio.sleep(0)
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await listening).close()
        with pytest.raises(OSError):
            await asyncio.open_unix_connection(path)
        assert not path.exists()


async def test_bytes_go_both_ways_through_a_unix_socket_of_ones_own(bench, client, tmp_path):
    path = tmp_path / "tunnel"
    async with forwarded(await echo_pod(bench, client), path=path) as forward:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        reader, writer = await asyncio.open_unix_connection(path)
        payload = os.urandom(3_000_000)
        writer.write(payload)
        async with asyncio.timeout(DEADLINE):
            assert await reader.readexactly(len(payload)) == payload
        assert len(forward._tasks) == 1
        writer.close()
    assert not path.exists()


async def test_many_connections_at_once_do_not_mix(bench, client):
    async def talk(forward, index):
        reader, writer = await connect(forward)
        payload = bytes([index]) * 100_000
        writer.write(payload)
        assert await reader.readexactly(len(payload)) == payload
        writer.close()

    async with forwarded(await echo_pod(bench, client)) as forward, asyncio.timeout(DEADLINE):
        await asyncio.gather(*(talk(forward, index) for index in range(20)))


async def test_messages_of_every_length_of_head_arrive_as_they_were_sent_whole_or_in_parts(bench, client):
    """Inside TLS they are sent without a copy, and with a mask of zeros."""
    assert client.cluster.ssl is not None
    target = await echo_pod(bench, client)
    async with forwarded(target):
        remote = await carrier.Carrier.open(target)
    got, more = bytearray(), asyncio.Event()

    async def take(data):
        got.extend(data)
        more.set()

    delivering = asyncio.create_task(remote.deliver(take))
    sent = bytearray()
    async with asyncio.timeout(DEADLINE):
        for size in (1, 124, 125, 65534, 65535, 300_000):
            payload = os.urandom(size)
            await remote.send(payload)
            await remote.send(b"", memoryview(payload)[: size // 2], payload[size // 2 :])
            sent += payload + payload
        while len(got) < len(sent):
            more.clear()
            await more.wait()
        assert got == sent
        remote.close()
        await delivering


async def test_a_connection_opened_ahead_is_used_and_keeps_what_was_said(bench, client, tmp_path):
    target = await echo_pod(bench, client, greeting="connection.sendall(b'hello')")
    async with forwarded(target, path=tmp_path / "tunnel"):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "tunnel")
        assert await reader.readexactly(5) == b"hello"
        writer.write(b"again")
        assert await reader.readexactly(5) == b"again"
        writer.close()


async def test_a_refused_port_is_reported_with_the_port_and_the_pod(bench, client):
    await bench.pod(client, "idle", "sleep", "600")
    forward = await portforward.listen(PodPort(client, "default", "idle", 7001))
    with pytest.raises(PortRefused, match="7001 of pod idle refuses connections") as raised:
        await forward.prepare()
    assert "log" in raised.value.hint
    await forward.close()


async def test_a_local_connection_to_a_refused_port_breaks_and_the_reason_is_reported(bench, client):
    await bench.pod(client, "idle", "sleep", "600")
    failures = asyncio.Queue()
    forward = await portforward.listen(PodPort(client, "default", "idle", 7001), on_failure=failures.put_nowait)
    reader, writer = await connect(forward)
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(ConnectionError):
            assert await reader.read(1)
        assert isinstance(await failures.get(), PortRefused)
    writer.close()
    await forward.close()


async def test_a_pod_that_is_gone_is_reported(client):
    forward = await portforward.listen(PodPort(client, "default", "missing", 7000))
    with pytest.raises(ApiError) as raised:
        await forward.prepare()
    assert raised.value.status == 404
    await forward.close()


@pytest.mark.parametrize(("granted", "missing"), [((), "get"), (("create",), "get"), (("get",), "create")])
async def test_a_forbidden_forward_names_the_verb_that_is_missing_and_asks_for_both(bench, granted, missing):
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": granted},
    ]
    async with bench.client(rules=rules, name="narrow") as client:
        await bench.pod(client, "idle", "sleep", "600")
        forward = await portforward.listen(PodPort(client, "default", "idle", 7000))
        with pytest.raises(ApiError, match=f"not allowed to {missing} pods/portforward idle") as raised:
            await forward.prepare()
        assert "get and create on pods/portforward" in raised.value.hint
        await forward.close()


@pytest.mark.parametrize("cut", ["pod", "server"])
async def test_what_cuts_a_transfer_is_noticed_and_reported_at_once(bench, client, cut, monkeypatch):
    monkeypatch.setattr(websocket, "PING_SECONDS", 1e6)
    target = await echo_pod(bench, client)
    failures = asyncio.Queue()
    async with forwarded(target, on_failure=failures.put_nowait) as forward:
        reader, writer = await connect(forward)
        writer.write(b"x" * 1000)
        assert await reader.readexactly(1000)
        if cut == "pod":
            await objects.delete(client, PODS, target.pod, namespace="default", grace_seconds=0)
        else:
            await bench.server.stop()
        async with asyncio.timeout(DEADLINE):
            try:
                assert await reader.read(1) == b""
            except ConnectionError:
                assert isinstance(await failures.get(), ClusterError)
        if cut == "server":
            assert not forward._tasks
            await bench.server.start()
        writer.close()


async def test_a_reader_that_does_not_read_makes_the_writer_wait_and_memory_stays_bounded(bench, client, tmp_path):
    target = await echo_pod(bench, client)
    loop = asyncio.get_running_loop()
    async with forwarded(target, path=tmp_path / "tunnel"):
        with socket.socket(socket.AF_UNIX) as near:
            near.connect(str(tmp_path / "tunnel"))
            near.setblocking(False)
            sent, chunk = 0, b"x" * 262_144
            # The echo is not read: sooner or later the pod stops reading, too.
            while True:
                try:
                    async with asyncio.timeout(1):
                        await loop.sock_sendall(near, chunk)
                except TimeoutError:
                    break
                sent += len(chunk)
                assert sent < 64 * 1024 * 1024


async def until_cut(target):
    """Open a connection to an echo server, which sends nothing on its own, and wait until it is cut."""
    path = PODS.item(target.namespace, target.pod, "portforward")
    query = {"ports": str(target.port)}
    messages = await target.client.websocket(path, protocols=(carrier.PROTOCOL,), query=query)
    with contextlib.suppress(ConnectionLost):
        async for _ in messages:
            pass
    messages.close()


@pytest.mark.thorough
async def test_an_idle_connection_outlives_the_timeout_of_the_kubelet(bench_type, tmp_path, monkeypatch):
    """Connections without keep-alive are cut meanwhile, one after the other, so the timeout has passed twice."""
    # The shortest one that is to be outlived has 20 s; here all is faster, with more room for a busy machine.
    assert carrier.KEEP_ALIVE_SECONDS < 20
    monkeypatch.setattr(carrier, "KEEP_ALIVE_SECONDS", 0.2)
    # Pings do not keep the connection open.
    monkeypatch.setattr(websocket, "PING_SECONDS", 1e6)
    failures = asyncio.Queue()
    async with asyncio.timeout(DEADLINE), bench_type(tmp_path, stream_idle_seconds=2.0) as bench:
        target = await echo_pod(bench, bench.client())
        async with forwarded(target, path=tmp_path / "tunnel", on_failure=failures.put_nowait) as forward:
            reader, writer = await asyncio.open_unix_connection(tmp_path / "tunnel")
            # One more is open in advance, for the next local connection.
            await prepared(forward)
            for _ in range(2):
                await until_cut(target)
            ahead_reader, ahead_writer = await asyncio.open_unix_connection(tmp_path / "tunnel")
            for talk, listen in ((writer, reader), (ahead_writer, ahead_reader)):
                talk.write(b"still here")
                assert await listen.readexactly(10) == b"still here"
                talk.close()
            assert failures.empty()


async def test_a_connection_that_has_ended_is_not_kept_alive(bench, client, monkeypatch):
    """A timer that continued would keep it in memory for ever."""
    monkeypatch.setattr(carrier, "KEEP_ALIVE_SECONDS", 0.05)
    async with asyncio.timeout(DEADLINE):
        target = await echo_pod(bench, client)
        closed, cut = [await carrier.Carrier.open(target) for _ in range(2)]
        closed.close()
        await objects.delete(client, PODS, target.pod, namespace="default", grace_seconds=0)
        await cut.answered.wait()
        ended = weakref.WeakSet([closed, cut])
        del closed, cut
        while ended:
            gc.collect()
            await asyncio.sleep(0.05)


async def test_a_taken_port_is_reported():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        with pytest.raises(ClusterError, match=f"Cannot listen on 127.0.0.1:{port}"):
            await portforward.listen(PodPort(None, "default", "any", 7000), port=port)


async def test_closing_ends_every_connection(bench, client):
    async with forwarded(await echo_pod(bench, client)) as forward:
        pairs = [await connect(forward) for _ in range(3)]
    async with asyncio.timeout(DEADLINE):
        for reader, writer in pairs:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
    assert not forward._tasks


def connecting() -> list[asyncio.Task]:
    """Tasks that open the carrier of a local connection."""
    return [task for task in asyncio.all_tasks() if task.get_coro().__qualname__ == "Forward._connect"]


async def test_closing_leaves_no_task_of_a_connection_that_is_being_made(tmp_path, monkeypatch):
    """The API server accepts the connection, and never answers."""
    monkeypatch.setattr(clients, "ANSWER_SECONDS", 1e6)
    monkeypatch.setattr(websocket, "PING_SECONDS", 1e6)
    asked, over = asyncio.Event(), asyncio.Event()

    async def mute(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await over.wait()
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server, asyncio.timeout(DEADLINE):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        target = PodPort(clients.Client(Cluster("mute", url, "default", Fixed(hint="none"))), "default", "p", 7000)
        forward = await portforward.listen(target, path=tmp_path / "tunnel")
        _, writer = await asyncio.open_unix_connection(tmp_path / "tunnel")
        await asked.wait()
        assert len(connecting()) == 1
        await forward.close()
        assert connecting() == []
        writer.close()
        over.set()


# Ascending numbers, so that bytes of a buffer that was reused too early show.
NUMBERS = np.arange(1_000_000, dtype=">u4").tobytes()
FLOOD = "connection.sendall(b''.join(number.to_bytes(4, 'big') for number in range(1_000_000)))"


# Supervisors run on uvloop, whose transports differ slightly.
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_flood_past_a_slow_reader_arrives_unchanged(bench_type, tmp_path, run):
    """With and without a connection opened in advance."""

    async def scenario():
        path = tmp_path / "tunnel"
        async with (
            bench_type(tmp_path) as bench,
            forwarded(await echo_pod(bench, bench.client(), greeting=FLOOD), path=path),
        ):
            for _ in range(2):
                reader, writer = await asyncio.open_unix_connection(path, limit=8192)
                payload = os.urandom(500_000)
                writer.write(payload)
                got = bytearray()
                while len(got) < len(NUMBERS) + len(payload):
                    got += await reader.read(50_000)
                assert got == NUMBERS + payload
                writer.close()

    run(asyncio.wait_for(scenario(), DEADLINE))
