"""The kubelet's idle timeout of streams, as the embedded API implements it."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import aiohttp
import pytest
from aiohttp import WSMsgType

POD = "/api/v1/namespaces/default/pods/p"
FORWARD = "v4.channel.k8s.io"
DEADLINE = 60.0
OFTEN = 0.02
"""Seconds between a client's messages, of which many fit into the timeout."""


@pytest.fixture
async def impatient(open_bench, tmp_path):
    """A server that cuts streams after a second without a message."""
    async with open_bench(tmp_path, stream_idle_seconds=1.0) as bench:
        await bench.running_pod("p")
        yield bench


async def until_cut(socket: aiohttp.ClientWebSocketResponse, send) -> int | None:
    """Call `send` again and again until the server cuts the connection; the code with which it closed."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await send()
                message = await socket.receive(timeout=OFTEN)
            except TimeoutError:
                continue
            except ConnectionError:
                return None
            if message.type in (WSMsgType.CLOSED, WSMsgType.CLOSE, WSMsgType.ERROR, WSMsgType.CLOSING):
                return socket.close_code


@pytest.mark.parametrize("keep_alive", [b"\x00", b"\x01", b"\x00x", b""], ids=["data", "error", "byte", "empty"])
async def test_messages_keep_a_forward_alive_and_pings_do_not(impatient, echo, keep_alive) -> None:
    path = f"{POD}/portforward?ports={echo}"
    async with impatient.websocket(path, FORWARD) as kept, impatient.websocket(path, FORWARD) as pinging:
        for _ in range(2):
            await kept.receive_bytes()

        async def send() -> None:
            await pinging.ping()
            await kept.send_bytes(keep_alive)

        assert await until_cut(pinging, send) in (None, 1006)

        await kept.send_bytes(b"\x00last")
        received = b""
        async with asyncio.timeout(DEADLINE):
            while not received.endswith(b"last"):
                received += (await kept.receive_bytes())[1:]


async def test_what_the_pod_sends_keeps_a_forward_alive(impatient, unused_tcp_port) -> None:
    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, OSError):
            while True:
                writer.write(b".")
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    if not await asyncio.wait_for(reader.read(1), OFTEN):
                        return

    async with await asyncio.start_server(chatter, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        path = f"{POD}/portforward?ports={port}"
        async with impatient.websocket(path, FORWARD) as kept:
            # Another connection's end is the sign that the timeout has passed.
            async with impatient.websocket(f"{POD}/exec?command=cat&stdin=1&stdout=1", FORWARD) as quiet:
                await until_cut(quiet, quiet.ping)
            async with asyncio.timeout(DEADLINE):
                assert (await kept.receive()).type is WSMsgType.BINARY


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_an_idle_program_is_cut_off_and_ended(impatient, protocol: str) -> None:
    path = f"{POD}/exec?command=cat&stdin=1&stdout=1"
    async with impatient.websocket(path, protocol) as kept, impatient.websocket(path, protocol) as pinging:

        async def send() -> None:
            await pinging.ping()
            await kept.send_bytes(b"\x00")

        assert await until_cut(pinging, send) in (None, 1006)

        await kept.send_bytes(b"\x00last")
        assert await asyncio.wait_for(kept.receive_bytes(), DEADLINE) == b"\x01last"
        kept_process, ended = impatient.runtime.processes
        assert await asyncio.wait_for(ended.wait(), DEADLINE) == 137
        assert kept_process.process.returncode is None


async def test_frames_keep_kubectls_forward_alive(impatient, echo) -> None:
    """kubectl speaks SPDY inside a WebSocket; its SPDY pings are frames, which a kubelet counts."""
    path, protocol = f"{POD}/portforward", "SPDY/3.1+portforward.k8s.io"
    spdy_ping = struct.pack(">HHII", 0x8003, 6, 4, 1)
    async with impatient.websocket(path, protocol) as kept, impatient.websocket(path, protocol) as pinging:

        async def exchange() -> None:
            await kept.send_bytes(spdy_ping)
            assert await kept.receive_bytes() == spdy_ping

        async def send() -> None:
            await pinging.ping()
            await exchange()

        assert await until_cut(pinging, send) in (None, 1006)
        await exchange()
