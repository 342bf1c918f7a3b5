"""Probes of a container whose port and commands are this process's."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from pathways_jupyter.local.node.environment import SpecError
from pathways_jupyter.local.node.probes import Probe

DEADLINE = 30.0


async def dial(port):
    return await asyncio.open_connection("127.0.0.1", port)


async def first(probe: Probe, count: int = 1) -> list[bool]:
    async with asyncio.timeout(DEADLINE), contextlib.aclosing(probe.results()) as results:
        return [await anext(results) for _ in range(count)]


@pytest.fixture
async def serve():
    """Serve on a port, with an answer to each connection; returns the port."""
    servers = []

    async def start(answer: bytes) -> int:
        async def respond(reader, writer):
            if answer:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
            writer.close()

        servers.append(await asyncio.start_server(respond, "127.0.0.1", 0))
        return servers[-1].sockets[0].getsockname()[1]

    yield start
    for server in servers:
        server.close()


def made(spec, *, ports=(), exits=()) -> Probe:
    codes = iter(exits)

    async def run(command):
        assert command == ["check"]
        return next(codes)

    return Probe({"periodSeconds": 0.02, **spec}, {"ports": list(ports)}, dial=dial, run=run)


async def test_a_port_is_ready_once_it_can_be_connected_to(serve, unused_tcp_port):
    port = await serve(b"")
    assert await first(made({"tcpSocket": {"port": port}})) == [True]
    named = made({"tcpSocket": {"port": "http"}}, ports=[{"name": "http", "containerPort": port}])
    assert await first(named) == [True]
    assert await first(made({"tcpSocket": {"port": unused_tcp_port}, "failureThreshold": 1})) == [False]


@pytest.mark.parametrize(
    ("status", "ready"), [("200 OK", True), ("302 Found", True), ("404 Not Found", False), ("500 Oh", False)]
)
async def test_a_request_is_answered_by_a_status_below_400(serve, status, ready):
    port = await serve(f"HTTP/1.0 {status}\r\n\r\n".encode())
    assert await first(made({"httpGet": {"port": port, "path": "/health"}, "failureThreshold": 1})) == [ready]


async def test_an_answer_that_is_not_http_is_a_failure(serve):
    port = await serve(b"no\r\n")
    assert await first(made({"httpGet": {"port": port}, "failureThreshold": 1})) == [False]


async def test_only_changes_count_and_each_after_its_threshold():
    probe = made(
        {"exec": {"command": ["check"]}, "failureThreshold": 3, "successThreshold": 2},
        exits=[1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 0, 0],
    )
    assert await first(probe, 3) == [True, False, True]


async def test_a_command_that_cannot_run_is_a_failure():
    async def missing(command):
        raise LookupError(command)

    probe = Probe({"exec": {}, "failureThreshold": 1, "periodSeconds": 0.02}, {}, dial=dial, run=missing)
    assert await first(probe) == [False]


@pytest.mark.parametrize("spec", [{}, {"grpc": {"port": 1}}])
def test_another_kind_of_probe_is_refused(spec):
    with pytest.raises(SpecError, match="must be tcpSocket, httpGet or exec"):
        made(spec)
