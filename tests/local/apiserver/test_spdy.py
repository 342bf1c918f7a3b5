"""SPDY in the messages of a WebSocket, as kubectl sends it to forward ports."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import zlib

import pytest
from aiohttp import WSMsgType

from pathways_jupyter.local.apiserver.spdy import DICTIONARY

FORWARD = "/api/v1/namespaces/default/pods/p/portforward"
DEADLINE = 60.0
SYN_STREAM, SYN_REPLY, RST_STREAM = 1, 2, 3


class Client:
    """kubectl's side of the connection."""

    def __init__(self, socket) -> None:
        self.socket = socket
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    async def open(self, stream: int, kind: str, port: str) -> None:
        pairs = [("streamtype", kind), ("port", port), ("requestid", "0")]
        plain = struct.pack(">I", len(pairs))
        for text in (text.encode() for pair in pairs for text in pair):
            plain += struct.pack(">I", len(text)) + text
        block = self._deflate.compress(plain) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        payload = struct.pack(">IIH", stream, 0, 0) + block
        await self.socket.send_bytes(struct.pack(">HHI", 0x8003, SYN_STREAM, len(payload)) + payload)

    async def frame(self) -> bytes:
        return await asyncio.wait_for(self.socket.receive_bytes(), DEADLINE)

    async def data(self, stream: int) -> bytes:
        """Data of one stream, until its end or that of the connection."""
        got = b""
        async for message in self.socket:
            number, size = struct.unpack(">II", message.data[:8])
            if number == stream:
                got += message.data[8:]
                if size >> 24:
                    break
        return got


@pytest.fixture
async def client(bench):
    await bench.running_pod("p")
    async with bench.websocket(FORWARD, "SPDY/3.1+portforward.k8s.io") as socket:
        yield Client(socket)


async def test_a_pair_of_streams_is_a_connection(client, echo) -> None:
    await client.open(1, "error", str(echo))
    await client.open(3, "data", str(echo))
    replies = [struct.unpack(">HHII", (await client.frame())[:12]) for _ in range(2)]
    assert [(kind, stream) for _, kind, _, stream in replies] == [(SYN_REPLY, 1), (SYN_REPLY, 3)]

    await client.socket.send_bytes(struct.pack(">II", 3, 5) + b"hello")
    await client.socket.send_bytes(struct.pack(">II", 3, 1 << 24))

    assert await asyncio.wait_for(client.data(3), DEADLINE) == b"hello"


async def test_a_port_where_nothing_listens_is_reported_on_its_error_stream(client, unused_tcp_port) -> None:
    await client.open(1, "error", str(unused_tcp_port))
    await client.open(3, "data", str(unused_tcp_port))

    text = await asyncio.wait_for(client.data(1), DEADLINE)

    assert f"error forwarding port {unused_tcp_port} to pod p".encode() in text


@pytest.mark.parametrize(("kind", "port"), [("other", "80"), ("data", "65536"), ("data", "x"), ("error", "²")])
async def test_a_stream_that_is_none_of_a_forward_is_refused(client, kind: str, port: str) -> None:
    await client.open(1, kind, port)

    assert struct.unpack(">HHIII", await client.frame()) == (0x8003, RST_STREAM, 8, 1, 3)


@pytest.mark.parametrize("streams", [[2], [1, 1]], ids=["even", "twice"])
async def test_a_client_that_numbers_its_streams_wrongly_is_cut_off(client, echo, streams: list[int]) -> None:
    """A client's streams have odd numbers, each its own."""
    with contextlib.suppress(ConnectionError):
        for stream in streams:
            await client.open(stream, "error", str(echo))
    async with asyncio.timeout(DEADLINE):
        while (message := await client.socket.receive()).type is WSMsgType.BINARY:
            pass

    assert (message.type, client.socket.close_code) == (WSMsgType.CLOSE, 1002)
