"""JAX's connection: before it ends, a few calls end alone."""

import asyncio
import struct

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathways_jupyter.tunnel.grpc_connection import GrpcConnection, _Beginning, _Frames

DEADLINE = 60.0
CALLS = 6
ALONE = "The connection to the proxy is lost."


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 255), st.integers(0, 2**31 - 1), st.integers(0, 70_000).map(bytes)),
        max_size=6,
    ),
    st.data(),
)
def test_frames_are_found_however_they_are_cut(frames, data):
    stream = b"".join(frame(*each) for each in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    found, seen = _Frames(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        seen += found.headers(memoryview(stream)[begin:end])
    assert seen == [each[:3] for each in frames]
    assert found.is_whole


@given(st.lists(st.integers(0, 300), max_size=8))
def test_only_the_answer_to_the_first_frame_is_left_out_however_it_is_cut(cuts):
    preface, answer, call = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", frame(4, 1, 0, b""), frame(1, 4, 1, bytes(40))
    # Bytes of a frame that look like it are none.
    before, after = preface + frame(4, 0, 0, bytes(12)) + frame(0, 0, 1, answer), call + answer + call
    stream, beginning, passed = before + answer + after, _Beginning(), b""
    cuts = sorted(each for each in cuts if len(preface) <= each <= len(stream))
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        piece = stream[begin:end]
        passed += piece if beginning.is_over else beginning.pass_on(piece)
    assert passed == before + after


def test_a_part_of_a_frame_is_not_whole():
    whole = frame(0, 0, 1, b"payload")
    for size in range(1, len(whole)):
        found = _Frames()
        list(found.headers(whole[:size]))
        assert not found.is_whole


class Way:
    """A gRPC server, a client, and between them a connection that is the one under test."""

    async def open(self, directory):
        self.begun, self.left = asyncio.Semaphore(0), asyncio.Semaphore(0)

        async def answer(request: bytes, context: grpc.aio.ServicerContext):
            self.begun.release()
            if request == b"answer":
                yield b"here"
            try:
                await asyncio.Event().wait()
            finally:
                self.left.release()

        self.server = grpc.aio.server()
        handler = grpc.unary_stream_rpc_method_handler(answer)
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test", {"Answer": handler})])
        self.server.add_insecure_port(f"unix:{directory}/server")
        await self.server.start()
        self.local = asyncio.get_running_loop().create_future()
        self._there = f"{directory}/server"
        self._listener = await asyncio.get_running_loop().create_unix_server(
            lambda: GrpcConnection(self.local.set_result), f"{directory}/client"
        )
        self.is_whole = asyncio.Event()
        self.is_whole.set()
        self._pumping = asyncio.create_task(self._pump())
        self.channel = grpc.aio.insecure_channel(f"unix:{directory}/client")
        return self

    async def _pump(self):
        local = await self.local
        await self.is_whole.wait()
        reader, writer = await asyncio.open_unix_connection(self._there)

        async def up():
            while data := await local.read():
                writer.write(data)

        async def down():
            while data := await reader.read(100_000):
                await local.write(memoryview(data))

        try:
            await asyncio.gather(up(), down())
        finally:
            writer.close()

    async def calls(self, count, *, answered=True):
        """Begin calls one after another; the server has each, and has begun to answer it or not."""
        begun = []
        for _ in range(count):
            begun.append(self.channel.unary_stream("/test/Answer")(b"answer" if answered else b"wait"))
            await self.begun.acquire()
            if answered:
                assert await begun[-1].read() == b"here"
        return begun

    async def close(self):
        self._pumping.cancel()
        await asyncio.gather(self._pumping, return_exceptions=True)
        await self.channel.close()
        await self.server.stop(None)
        self._listener.close()


@pytest.fixture
async def way(tmp_path):
    way = await Way().open(tmp_path)
    yield way
    await way.close()


@pytest.mark.parametrize("broken", [True, False])
@pytest.mark.parametrize("answered", [True, False])
async def test_of_several_calls_the_latest_end_alone_and_the_others_with_the_connection(way, broken, answered):
    async with asyncio.timeout(DEADLINE):
        calls = await way.calls(CALLS, answered=answered)
        done = []
        for number, call in enumerate(calls):
            call.add_done_callback(lambda _, number=number: done.append(number))
        await (await way.local).end(broken=broken)
        assert [await call.code() for call in calls] == [grpc.StatusCode.UNAVAILABLE] * CALLS
    assert [await call.details() == ALONE for call in calls] == [False] * 3 + [True] * 3
    assert done[:3] == [5, 4, 3]


async def test_calls_that_are_over_are_not_ended_again(way):
    async with asyncio.timeout(DEADLINE):
        calls = await way.calls(CALLS)
        for call in calls[2:]:
            call.cancel()
            await way.left.acquire()
        await (await way.local).end(broken=True)
        assert [await call.details() == ALONE for call in calls] == [True] * 2 + [False] * 4


async def test_a_single_call_ends_with_the_connection(way):
    async with asyncio.timeout(DEADLINE):
        (call,) = await way.calls(1)
        await (await way.local).end(broken=True)
        assert await call.code() == grpc.StatusCode.UNAVAILABLE
        assert await call.details() != ALONE


async def test_nothing_is_put_into_an_answer_that_was_cut(way):
    async with asyncio.timeout(DEADLINE):
        calls = await way.calls(2)
        local = await way.local
        # The beginning of an answer's data, of which the rest never comes.
        await local.write(memoryview(frame(0, 0, 1, bytes(1000))[:500]))
        await local.end(broken=True)
        assert [await call.code() for call in calls] == [grpc.StatusCode.UNAVAILABLE] * 2
        assert ALONE not in [await call.details() for call in calls]


async def test_a_connection_begins_while_nothing_reaches_the_server(way):
    """gRPC would give up after twenty seconds, and JAX with it."""
    way.is_whole.clear()
    async with asyncio.timeout(DEADLINE):
        await way.channel.channel_ready()
        call = way.channel.unary_stream("/test/Answer")(b"answer")
        way.is_whole.set()
        assert await call.read() == b"here"
        await way.calls(CALLS)


async def test_who_asks_for_the_end_again_waits_for_it(way):
    async with asyncio.timeout(DEADLINE):
        calls = await way.calls(CALLS)
        local = await way.local
        first = asyncio.create_task(local.end(broken=True))
        await asyncio.sleep(0)
        await local.end(broken=True)
        await first
        with pytest.raises(ConnectionError):
            await local.write(memoryview(b"more"))
        assert all([await call.code() for call in calls])


async def test_what_is_not_grpc_is_carried_and_ended(tmp_path):
    accepted = asyncio.get_running_loop().create_future()
    server = await asyncio.get_running_loop().create_unix_server(
        lambda: GrpcConnection(accepted.set_result), f"{tmp_path}/socket"
    )
    reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/socket")
    local = await accepted
    async with asyncio.timeout(DEADLINE):
        writer.write(b"\x16\x03\x01" + bytes(100))
        assert await local.read() == b"\x16\x03\x01" + bytes(100)
        await local.write(memoryview(b"answer"))
        await local.end(broken=False)
        assert await reader.read() == b"answer"
    writer.close()
    server.close()
