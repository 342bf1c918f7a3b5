"""Server for clients of gRPC's C core."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path

import grpc
import pytest

from pathways_jupyter.local.pathways.http2 import connection, wire
from pathways_jupyter.local.pathways.http2.rpcs import Content, Messages, RpcCall
from pathways_jupyter.local.pathways.http2.wire import FrameType

DEADLINE = 60.0


class Echo:
    """Methods: say everything again, count bytes, send many, end early, break."""

    def __init__(self) -> None:
        self.gone = threading.Event()

    def serve(self, call: RpcCall) -> None:
        match call.path:
            case "/test/Echo":
                call.receiver = Messages(call.send, call.finish, self.gone.set)
            case "/test/Count":
                total = 0

                def piece(data: memoryview) -> None:
                    nonlocal total
                    total += len(data)

                def end() -> None:
                    call.send(b"%d" % total)
                    call.finish()

                call.receiver = Content(lambda length: None, piece, end, self.gone.set)
            case "/test/Many":

                def many(request: bytes) -> None:
                    for _ in range(64):
                        call.send(b"head", memoryview(bytes(1 << 20)))
                    call.finish()

                call.receiver = Messages(many)
            case "/test/Refuse":
                call.receiver = Messages(lambda data: call.finish(5, "nothing of that kind: ä%"))
            case "/test/Break":
                call.receiver = Messages(lambda data: 1 / 0)
            case _:
                call.finish(12, "no such method")


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def path(echo):
    # Not pytest's own directory: its path is too long for a unix socket.
    with tempfile.TemporaryDirectory(prefix="pw") as directory:
        path = Path(directory, "socket")
        connection.listen(path, echo.serve)
        yield path


@pytest.fixture
def channel(path):
    with grpc.insecure_channel(f"unix:{path}", options=[("grpc.max_receive_message_length", -1)]) as channel:
        yield channel


def test_messages_of_every_size_come_back_in_order(channel):
    sent = [bytes([size % 256]) * size for size in (0, 1, 16379, 16380, 65535, 300_000, 5_000_000, 3)]
    assert list(channel.stream_stream("/test/Echo")(iter(sent), timeout=DEADLINE)) == sent


def test_calls_of_one_connection_do_not_wait_for_each_other(channel):
    release = threading.Event()

    def slowly():
        yield b"first"
        release.wait(DEADLINE)
        yield b"last"

    slow = channel.stream_stream("/test/Echo")(slowly(), timeout=DEADLINE)
    assert next(slow) == b"first"
    assert channel.unary_unary("/test/Echo")(b"beside", timeout=DEADLINE) == b"beside"
    release.set()
    assert list(slow) == [b"last"]


def test_more_than_any_window_goes_up(channel):
    chunks = (bytes(1 << 20) for _ in range(700))
    assert channel.stream_unary("/test/Count")(chunks, timeout=DEADLINE) == b"%d" % (700 << 20)


def test_more_than_any_window_comes_down_while_small_answers_pass(channel):
    many = channel.unary_stream("/test/Many")(b"", timeout=DEADLINE)
    assert len(next(many)) == 4 + (1 << 20)
    assert channel.unary_unary("/test/Echo")(b"beside", timeout=DEADLINE) == b"beside"
    assert sum(map(len, many)) == 63 * (4 + (1 << 20))


def test_thousands_of_calls_at_once_are_all_answered(channel):
    call = channel.unary_unary("/test/Echo")
    waiting = [call.future(b"%d" % each, timeout=DEADLINE) for each in range(3000)]
    assert [each.result() for each in waiting] == [b"%d" % each for each in range(3000)]


@pytest.mark.parametrize(
    ("method", "code", "details"),
    [
        ("Refuse", grpc.StatusCode.NOT_FOUND, "nothing of that kind: ä%"),
        ("Break", grpc.StatusCode.INTERNAL, "ZeroDivisionError: division by zero"),
        ("Absent", grpc.StatusCode.UNIMPLEMENTED, "no such method"),
    ],
)
def test_errors_have_a_status_and_the_connection_goes_on(channel, method, code, details):
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(f"/test/{method}")(b"x", timeout=DEADLINE)
    assert (caught.value.code(), caught.value.details()) == (code, details)
    assert channel.unary_unary("/test/Echo")(b"x", timeout=DEADLINE) == b"x"


def test_a_call_that_the_client_cancels_is_reported(channel, echo):
    call = channel.stream_stream("/test/Echo")(iter([b"x", *[b"y"] * 3]), timeout=DEADLINE)
    next(call)
    forever = channel.stream_stream("/test/Echo")(_forever(), timeout=DEADLINE)
    next(forever)
    forever.cancel()
    assert echo.gone.wait(DEADLINE)


def test_a_client_that_vanishes_is_reported(path, echo):
    channel = grpc.insecure_channel(f"unix:{path}")
    call = channel.stream_stream("/test/Echo")(_forever(), timeout=DEADLINE)
    next(call)
    channel.close()
    assert echo.gone.wait(DEADLINE)


def test_a_client_that_says_little_at_a_time_is_understood(path):
    head = wire.frame(FrameType.HEADERS, wire.END_HEADERS, 1, b"\x04\x0a/test/Echo")
    body = wire.frame(FrameType.DATA, wire.END_STREAM, 1, b"\0\0\0\0\x02hi")
    said = wire.PREFACE + wire.frame(FrameType.SETTINGS, 0, 0) + head + body
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(DEADLINE)
        peer.connect(str(path))
        for each in said:
            peer.sendall(bytes([each]))
        received = b""
        while b"\0\0\0\0\x02hi" not in received:
            received += peer.recv(4096)


def _forever():
    yield b"x"
    threading.Event().wait(DEADLINE)
