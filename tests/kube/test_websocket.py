"""The server is aiohttp's, over plain HTTP, where payloads are masked."""

import asyncio
import contextlib
import struct
from socket import SO_RCVBUF, SOL_SOCKET
from socket import socket as TcpSocket

import pytest
from aiohttp import WSMsgType, web

from pathways_jupyter.base.errors import ApiError, ClusterError, ConnectionLost
from pathways_jupyter.kube import websocket
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.kube.credentials import Fixed
from pathways_jupyter.kube.library import Sent

DEADLINE = 60.0


@contextlib.asynccontextmanager
async def server(handler, listener=None):
    """Serve one handler, and yield a client of it."""
    app = web.Application()
    app.router.add_get("/ws", handler)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await (web.SockSite(runner, listener) if listener else web.TCPSite(runner, "127.0.0.1", 0)).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    client = Client(Cluster("ws", url, "default", Fixed(hint="none")))
    async with asyncio.timeout(DEADLINE):
        yield client
    client.close()
    await runner.cleanup()


@contextlib.asynccontextmanager
async def opened(handler, listener=None):
    """Serve one handler, and yield a WebSocket to it."""
    async with server(handler, listener) as client:
        messages = await client.websocket("/ws", protocols=("v4.test",))
        yield messages
        messages.close()


async def upgraded(request, **options):
    socket = web.WebSocketResponse(protocols=["v4.test"], max_msg_size=0, **options)
    await socket.prepare(request)
    return socket


async def echo(request):
    socket = await upgraded(request)
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
    return socket


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 3_000_001])
async def test_a_message_of_any_size_arrives_as_it_was_sent(size):
    payload = bytes(index % 251 for index in range(size))
    async with opened(echo) as messages:
        await messages.send(payload)
        assert await anext(aiter(messages)) == payload


async def test_a_goodbye_ends_the_messages(monkeypatch):
    async def farewell(request):
        socket = await upgraded(request)
        await socket.send_bytes(b"last")
        await socket.close()
        return socket

    async with opened(farewell) as messages:
        assert [message async for message in messages] == [b"last"]
        with pytest.raises(ConnectionLost):
            await messages.send(b"late")


async def test_a_bad_goodbye_is_reported_with_its_code_and_reason():
    async def unhappy(request):
        socket = await upgraded(request)
        await socket.close(code=1011, message=b"out of order")
        return socket

    async with opened(unhappy) as messages:
        with pytest.raises(ConnectionLost, match="1011 out of order"):
            await anext(aiter(messages))


async def test_a_message_in_fragments_is_put_together_and_frames_in_between_do_no_harm():
    async def fragments(request):
        socket = await upgraded(request)
        transport = request.transport
        transport.write(struct.pack("!BB", 0x02, 3) + b"abc")
        transport.write(struct.pack("!BB", 0x89, 2) + b"hi")
        transport.write(struct.pack("!BB", 0x00, 0))
        transport.write(struct.pack("!BB", 0x80, 3) + b"def")
        await socket.receive()
        return socket

    async with opened(fragments) as messages:
        assert await anext(aiter(messages)) == b"abcdef"


@pytest.mark.parametrize("frame", [b"\xc2\x00", b"\x83\x00"])
async def test_a_frame_that_no_server_may_send_ends_the_connection(frame):
    async def wrong(request):
        socket = await upgraded(request)
        request.transport.write(frame)
        await socket.receive()
        return socket

    async with opened(wrong) as messages:
        with pytest.raises(ConnectionLost, match="an invalid frame"):
            await anext(aiter(messages))


async def test_a_server_that_stops_answering_is_noticed(monkeypatch):
    """After the upgrade the relay forwards nothing, and closes nothing."""
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.3)
    async with server(echo) as inner:
        host, port = inner.cluster.server.removeprefix("http://").split(":")

        async def mute(reader, writer):
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            far_writer.write(await reader.readuntil(b"\r\n\r\n"))
            writer.write(await far_reader.readuntil(b"\r\n\r\n"))
            await reader.read()
            far_writer.close()
            writer.close()

        async with await asyncio.start_server(mute, "127.0.0.1", 0) as relay:
            url = f"http://127.0.0.1:{relay.sockets[0].getsockname()[1]}"
            async with Client(Cluster("ws", url, "default", Fixed(hint="none"))) as client:
                messages = await client.websocket("/ws", protocols=("v4.test",))
                with pytest.raises(ConnectionLost, match="stopped answering"):
                    await anext(aiter(messages))
                messages.close()


@pytest.mark.thorough
async def test_a_server_that_takes_data_slowly_is_not_dead(monkeypatch):
    """No ping is answered for far longer than a dead server may take: the answers come behind the data."""
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.4)
    received, piece, pieces = [], bytes(64 * 1024), 120

    async def slow(request):
        socket = await upgraded(request)
        async for message in socket:
            received.append(message.data)
            await asyncio.sleep(0.02)
        return socket

    with TcpSocket() as listener:
        # Little is buffered, so that the client sees how slow the server is.
        listener.setsockopt(SOL_SOCKET, SO_RCVBUF, 64 * 1024)
        listener.bind(("127.0.0.1", 0))
        async with opened(slow, listener) as messages:
            reading = asyncio.ensure_future(anext(aiter(messages), None))
            for _ in range(pieces):
                await messages.send(piece)
            while len(received) < pieces:
                assert not reading.done(), reading.exception()
                await asyncio.sleep(0.05)
            messages.close()
            await reading


async def test_pings_keep_an_idle_connection_alive(monkeypatch):
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.05)
    pings = asyncio.Queue()

    async def count(request):
        socket = await upgraded(request, autoping=False)
        async for message in socket:
            if message.type is WSMsgType.PING:
                pings.put_nowait(1)
                await socket.pong(message.data)
        return socket

    async with opened(count):
        for _ in range(5):
            await pings.get()


@pytest.mark.thorough
async def test_a_ping_that_is_not_answered_is_followed_by_another_one(monkeypatch):
    """A process that was stopped finds its timer expired before it reads the answer, and a server may be busy."""
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.3)
    pings = asyncio.Queue()

    async def every_second(request):
        socket = await upgraded(request, autoping=False)
        async for message in socket:
            pings.put_nowait(1)
            # After two periods: in one of any two there is an answer.
            if pings.qsize() % websocket.UNANSWERED_PINGS == 0:
                await socket.pong(message.data)
        return socket

    async with opened(every_second) as messages:
        reading = asyncio.create_task(anext(aiter(messages)))
        while pings.qsize() < 5 * websocket.UNANSWERED_PINGS:
            await asyncio.wait({reading}, timeout=0.05)
            assert not reading.done(), reading.exception()
        reading.cancel()


async def test_a_slow_reader_makes_the_server_wait():
    half_sent = asyncio.Event()

    async def flood(request):
        socket = await upgraded(request)
        with contextlib.suppress(ConnectionError):
            for number in range(200):
                await socket.send_bytes(b"x" * 262_144)
                if number == 100:
                    half_sent.set()
        return socket

    async with opened(flood) as messages:
        iterator = aiter(messages)
        await anext(iterator)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await half_sent.wait()
        for _ in range(199):
            assert len(await anext(iterator)) == 262_144


async def test_a_paused_reader_is_not_taken_for_a_dead_server(monkeypatch):
    """While reading is paused no pong can arrive, so a missing one must not end the connection."""
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.05)
    pings = asyncio.Queue()

    async def flood(request):
        socket = await upgraded(request, autoping=False)

        async def receive():
            async for message in socket:
                pings.put_nowait(message.type)

        receiving = asyncio.create_task(receive())
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                await socket.send_bytes(b"x" * 262_144)
        await receiving
        return socket

    async with opened(flood) as messages:
        iterator = aiter(messages)
        await anext(iterator)
        for _ in range(8):
            assert await pings.get() is WSMsgType.PING
        for _ in range(199):
            assert len(await anext(iterator)) == 262_144


async def test_a_refused_upgrade_is_reported_with_its_request():
    async def refuse(request):
        return web.json_response({"reason": "Forbidden", "message": "no"}, status=403)

    async with server(refuse) as client:
        with pytest.raises(ApiError, match="not allowed") as raised:
            await client.websocket("/ws", protocols=("v4.test",))
        assert raised.value.status == 403


async def test_a_protocol_that_the_server_does_not_speak_is_reported():
    async with server(echo) as client:
        with pytest.raises(ClusterError, match=r"supports none of the protocols v9.test"):
            await client.websocket("/ws", protocols=("v9.test",))


async def test_an_answer_to_another_upgrade_is_rejected():
    async def forge(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: forged"
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\n%b\r\n\r\n" % upgrade)

    async with await asyncio.start_server(forge, "127.0.0.1", 0) as forger:
        url = f"http://127.0.0.1:{forger.sockets[0].getsockname()[1]}"
        async with Client(Cluster("ws", url, "default", Fixed(hint="none")), patience=0) as client:
            with pytest.raises(ConnectionLost, match="invalid challenge response"):
                await client.websocket("/ws", protocols=("v4.test",))


def test_bytes_that_wait_longer_are_no_progress():
    # Without Linux, the first number is the negative of the second.
    assert not Sent(-60_000, 60_000).moves_since(Sent(-30_000, 30_000))
    assert Sent(-10_000, 10_000).moves_since(Sent(-30_000, 30_000))
    assert not Sent(0, 0).moves_since(Sent(50_000, 30_000))


def test_a_little_that_was_just_sent_is_no_progress():
    assert not Sent(100, 0).moves_since(Sent(70, 30))
