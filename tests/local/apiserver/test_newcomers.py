"""Bound on connections that have not authenticated: how many, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

import pytest

DEADLINE = 60.0
HALF = b"GET / HTTP/1.1\r\nHost: x\r\n"


async def connect(bench, *, tls: bool):
    context = ssl.create_default_context(cafile=bench.server.ca) if tls else None
    return await asyncio.open_connection("127.0.0.1", bench.server.port, ssl=context)


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """What came until the server closed."""
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), DEADLINE)
    return b""


@pytest.mark.parametrize("tls", [False, True], ids=["handshake", "head"])
async def test_a_client_that_does_not_come_to_the_point_is_cut_off(bench, tls: bool) -> None:
    assert (await bench.call("GET", "/version"))[0] == 200
    bench.server._listener.newcomers._seconds = 0.3
    reader, writer = await connect(bench, tls=tls)
    writer.write(HALF if tls else b"\x16")

    assert await end_of(reader) == b""

    writer.close()
    # The connection that has shown its token before is not affected, however long it is quiet.
    assert (await bench.call("GET", "/version"))[0] == 200
    assert bench.server.connections == 1
    assert len(bench.server._listener.newcomers) == 0


async def test_the_oldest_goes_when_there_are_too_many(bench) -> None:
    bench.server._listener.newcomers._most = 3
    open_ = [await connect(bench, tls=True) for _ in range(3)]
    for _, writer in open_:
        writer.write(HALF)
    assert (await bench.call("GET", "/version"))[0] == 200

    assert await end_of(open_[0][0]) == b""
    for reader, writer in open_[1:]:
        writer.write(b"Authorization: Bearer " + bench.token.encode() + b"\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), DEADLINE)).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_refused_client_is_not_kept(bench) -> None:
    reader, writer = await connect(bench, tls=True)
    writer.write(HALF + b"Authorization: Bearer wrong\r\n\r\n")

    assert (await end_of(reader)).startswith(b"HTTP/1.1 401")
    writer.close()


async def test_a_server_that_stops_drops_those_as_well(bench) -> None:
    open_ = [await connect(bench, tls=tls) for tls in (False, True)]

    await bench.server.stop()

    for reader, writer in open_:
        assert await end_of(reader) == b""
        writer.close()
