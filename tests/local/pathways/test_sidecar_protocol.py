"""Messages between a proxy and a sidecar, on a pair of sockets."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pathways_jupyter.local.pathways.sidecar_protocol import (
    SidecarConnection,
    WireError,
    aligned,
    pack_strings,
    unpack_strings,
)


@pytest.fixture
def ends():
    ours, theirs = (SidecarConnection(each) for each in socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def test_parts_arrive_beside_their_header_in_aligned_memory(ends):
    ours, theirs = ends
    array = np.arange(5_000_000, dtype=np.float32)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(ours.send, {"op": "call", "id": 1}, [b"", array.data, b"abc"])
        header, parts = theirs.receive()
        sending.result()
    assert (header["op"], header["id"]) == ("call", 1)
    assert [len(part) for part in parts] == [0, array.nbytes, 3]
    assert np.array_equal(np.frombuffer(parts[1], np.float32), array)
    assert bytes(parts[2]) == b"abc"
    assert np.frombuffer(parts[1], np.uint8).ctypes.data % 64 == 0


def test_messages_of_several_threads_do_not_mix(ends):
    ours, theirs = ends
    with ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(ours.send, {"id": number}, [bytes([number]) * 1000]) for number in range(100)]
        received = [theirs.receive() for _ in range(100)]
        for each in sent:
            each.result()
    assert sorted(header["id"] for header, _ in received) == list(range(100))
    assert all(bytes(part) == bytes([header["id"]]) * 1000 for header, (part,) in received)


def test_a_peer_that_goes_is_noticed_between_messages_and_inside_one(ends):
    ours, theirs = ends
    ours._socket.sendall(b'{"parts": [10]}\nabc')
    ours.close()
    with pytest.raises(WireError, match="in the middle of a message"):
        theirs.receive()
    with pytest.raises(WireError, match="the connection was closed"):
        theirs.receive()
    with pytest.raises(WireError):
        ours.send({})


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1\r\n", b"{}\n"])
def test_anything_but_a_message_ends_the_connection(ends, line):
    ours, theirs = ends
    ours._socket.sendall(line)
    with pytest.raises(WireError):
        theirs.receive()


def test_closing_ends_a_receive_in_another_thread(ends):
    _, theirs = ends
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(theirs.receive)
        theirs.close()
        with pytest.raises((WireError, ValueError)):
            receiving.result(timeout=30)


@pytest.mark.parametrize("words", [[], [b""], [b"a", b"", "ü".encode(), b"x" * 1000]])
def test_strings_are_packed_into_one_part(words):
    assert unpack_strings(pack_strings(words), len(words)) == words


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65])
def test_memory_has_the_size_that_was_asked_for(size):
    assert len(aligned(size)) == size
