from __future__ import annotations

import asyncio
import json
import struct

import pytest
from aiohttp import WSMsgType, WSServerHandshakeError

POD = "/api/v1/namespaces/default/pods/p"
FORWARD = "v4.channel.k8s.io"


async def channels(socket) -> dict[int, bytes]:
    """Everything until the server closes, by channel."""
    found: dict[int, bytes] = {}
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            found[message.data[0]] = found.get(message.data[0], b"") + message.data[1:]
    return found


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_a_program_runs_with_its_streams_and_its_exit_code(bench, protocol: str) -> None:
    await bench.running_pod("p")
    script = "echo out; echo err >%262; exit 7"
    async with bench.websocket(
        f"{POD}/exec?command=sh&command=-c&command={script}&stdout=1&stderr=1", protocol
    ) as socket:
        assert socket.protocol == protocol
        found = await channels(socket)

    assert (found[1], found[2]) == (b"out\n", b"err\n")
    final = json.loads(found[3])
    assert (final["status"], final["reason"]) == ("Failure", "NonZeroExitCode")
    assert final["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]


async def test_standard_input_can_be_ended_without_ending_the_program(bench) -> None:
    await bench.running_pod("p")
    async with bench.websocket(f"{POD}/exec?command=cat&stdin=1&stdout=1", "v5.channel.k8s.io") as socket:
        await socket.send_bytes(b"\x00one ")
        await socket.send_bytes(b"\x00two")
        await socket.send_bytes(b"\xff\x00")
        found = await channels(socket)

    assert found[1] == b"one two"
    assert json.loads(found[3])["status"] == "Success"


async def test_a_terminal_is_resized_and_has_one_output(bench) -> None:
    await bench.running_pod("p")
    query = "command=sh&command=-c&command=echo out; echo err >%262; read x&stdin=1&stdout=1&tty=1"
    async with bench.websocket(f"{POD}/exec?{query}", "v5.channel.k8s.io") as socket:
        await socket.send_bytes(b'\x04{"Width":80,"Height":24}')
        await socket.send_bytes(b'\x04{"Width":"x"}')
        await socket.send_bytes(b"\x04nonsense")
        await socket.send_bytes(b"\x00go\n")
        found = await channels(socket)

    assert found[1] == b"out\nerr\n"
    assert bench.runtime.processes[0].sizes == [(80, 24)]


async def test_a_program_ends_when_its_client_goes(bench) -> None:
    await bench.running_pod("p")
    async with bench.websocket(f"{POD}/exec?command=sleep&command=1000&stdout=1", "v5.channel.k8s.io"):
        pass

    assert await asyncio.wait_for(bench.runtime.processes[0].wait(), 30) == 137


@pytest.mark.parametrize(
    ("query", "protocol", "code"),
    [
        ("exec?stdout=1", "v5.channel.k8s.io", 400),
        ("exec?command=ls", "v5.channel.k8s.io", 400),
        ("exec?command=ls&stdout=1&container=other", "v5.channel.k8s.io", 400),
        ("exec?command=ls&stdout=1", "v9.channel.k8s.io", 403),
        ("portforward", FORWARD, 400),
        ("portforward?ports=x", FORWARD, 400),
        ("portforward?ports=0", FORWARD, 400),
        ("portforward?ports=65536", FORWARD, 400),
        ("portforward?ports=80", "v5.channel.k8s.io", 403),
        ("portforward?ports=80", "portforward.k8s.io", 403),
        ("portforward?ports=80", "v2.portforward.k8s.io", 403),
    ],
)
async def test_connections_that_cannot_be_are_refused_before_they_begin(bench, query, protocol, code) -> None:
    await bench.running_pod("p")

    with pytest.raises(WSServerHandshakeError) as refused:
        async with bench.websocket(f"{POD}/{query}", protocol):
            pass

    assert refused.value.status == code
    assert (await bench.call("GET", f"{POD}/{query}"))[0] == 400


async def test_two_ports_share_a_connection(bench, echo) -> None:
    await bench.running_pod("p")
    async with bench.websocket(f"{POD}/portforward?ports={echo}&ports={echo}", FORWARD) as socket:
        for _ in range(4):
            await socket.receive_bytes()
        await socket.send_bytes(b"\x02two")
        await socket.send_bytes(b"\x00one")
        got = {await asyncio.wait_for(socket.receive_bytes(), 30) for _ in range(2)}

    assert got == {b"\x02two", b"\x00one"}


async def test_a_refused_port_is_reported_on_its_error_channel(bench, unused_tcp_port) -> None:
    await bench.running_pod("p")
    async with bench.websocket(f"{POD}/portforward?ports={unused_tcp_port}", FORWARD) as socket:
        found = await channels(socket)
        code = socket.close_code

    assert found[0] == struct.pack("<H", unused_tcp_port)
    assert f"error forwarding port {unused_tcp_port} to pod p".encode() in found[1]
    assert code == 1000


async def test_the_pods_end_of_a_connection_ends_with_the_clients(bench) -> None:
    await bench.running_pod("p")
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with bench.websocket(f"{POD}/portforward?ports={port}", FORWARD) as socket:
            await socket.send_bytes(b"\x00hello")
            await socket.receive_bytes()
        await asyncio.wait_for(ended.wait(), 30)


async def test_a_log_is_read_whole_by_its_tail_or_as_it_grows(bench) -> None:
    pod = await bench.running_pod("p", lines=(b"one", b"two", b"three"))

    assert await bench.call("GET", f"{POD}/log") == (200, "one\ntwo\nthree\n")
    assert await bench.call("GET", f"{POD}/log?tailLines=1&container=main") == (200, "three\n")
    assert await bench.call("GET", f"{POD}/log?limitBytes=5") == (200, "one\nt")
    async with bench.request("GET", f"{POD}/log?follow=true&tailLines=0") as response:
        await bench.runtime.write(pod["metadata"]["uid"], "main", b"four")
        assert await response.content.readline() == b"four\n"
        await bench.runtime.end(pod["metadata"]["uid"])
        assert await response.content.read() == b""


@pytest.mark.parametrize("query", ["container=other", "tailLines=-1", "tailLines=x", "sinceTime=soon", "previous=true"])
async def test_logs_that_cannot_be_had_are_refused(bench, query: str) -> None:
    await bench.running_pod("p")

    code, refused = await bench.call("GET", f"{POD}/log?{query}")

    assert (code, refused["reason"]) == (400, "BadRequest")


async def test_the_log_of_a_container_that_waits_says_why(bench, pod_manifest) -> None:
    await bench.call("POST", "/api/v1/namespaces/default/pods", pod_manifest("p"))

    code, refused = await bench.call("GET", f"{POD}/log")

    assert (code, refused["message"]) == (
        400,
        'container "main" in pod "p" is waiting to start: ContainerCreating',
    )


class Pod(asyncio.Protocol):
    """A program that sends `size` bytes as fast as it can, and says when it was made to wait."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.waits = asyncio.Event()
        self.held = False

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.go_on()

    def pause_writing(self) -> None:
        self.held = True
        self.waits.set()

    def resume_writing(self) -> None:
        self.held = False
        self.go_on()

    def go_on(self) -> None:
        while self.left and not self.held:
            piece = min(self.left, 1 << 16)
            self.left -= piece
            self.transport.write(bytes(piece))
        if not self.left:
            self.transport.close()


async def test_a_client_that_reads_late_makes_the_pod_wait_and_loses_nothing(bench) -> None:
    await bench.running_pod("p")
    size = 64 << 20
    pod = Pod(size)
    server = await asyncio.get_running_loop().create_server(lambda: pod, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with bench.websocket(f"{POD}/portforward?ports={port}", FORWARD) as socket:
            await asyncio.wait_for(pod.waits.wait(), 60)
            assert pod.left > size // 4
            got = sum([len(message.data) - 1 async for message in socket])

    assert got == size + 2 + 2


async def test_a_pod_that_reads_late_makes_the_client_wait_and_loses_nothing(bench) -> None:
    await bench.running_pod("p")
    size, got, begin = 64 << 20, 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await begin.wait()
        while got < size:
            got += len(await reader.read(1 << 18))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with bench.websocket(f"{POD}/portforward?ports={port}", FORWARD) as socket:

            async def send() -> None:
                for _ in range(size >> 18):
                    await socket.send_bytes(b"\x00" + bytes(1 << 18))

            sending = asyncio.create_task(send())
            done, _ = await asyncio.wait({sending}, timeout=2)
            assert not done
            begin.set()
            await asyncio.wait_for(sending, 60)
            await channels(socket)

    assert got == size


@pytest.mark.parametrize("ending", ["client", "pod"])
async def test_a_connection_that_was_used_before_can_become_a_tunnel(bench, echo, ending: str) -> None:
    await bench.running_pod("p")
    assert (await bench.call("GET", POD))[0] == 200
    assert bench.server.connections == 1
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = echo if ending == "client" else server.sockets[0].getsockname()[1]
    async with bench.websocket(f"{POD}/portforward?ports={port}", FORWARD) as socket:
        assert bench.server.connections == 1
        await socket.receive_bytes()
        await socket.receive_bytes()
        if ending == "client":
            await socket.send_bytes(b"\x00again")
            assert await asyncio.wait_for(socket.receive_bytes(), 30) == b"\x00again"
        else:
            assert await asyncio.wait_for(channels(socket), 30) == {}
    server.close()

    assert (await bench.call("GET", POD))[0] == 200
    assert bench.server.connections == 1
