from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pathways_jupyter.local.apiserver.spdy import DICTIONARY, SpdyConnection, SpdyError
from pathways_jupyter.local.apiserver.websocket_frames import FrameError, FrameReader, Opcode, accept_key, frame_head

QUICK = settings(max_examples=60, deadline=None)


def masked(opcode: int, payload: bytes, mask: bytes, final: bool = True) -> bytes:
    head = bytearray(frame_head(Opcode.BINARY, len(payload)))
    head[0] = (0x80 if final else 0) | opcode
    head[1] |= 0x80
    return bytes(head) + mask + bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))


def read(data: bytes, cuts: list[int]) -> tuple[list[bytes], list[tuple[Opcode, bytes]]]:
    messages: list[bytes] = []
    controls: list[tuple[Opcode, bytes]] = []

    def on_piece(piece: memoryview, first: bool) -> None:
        if first:
            messages.append(b"")
        messages[-1] += bytes(piece)

    reader = FrameReader(on_piece, lambda opcode, payload: controls.append((opcode, payload)))
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        reader.feed(data[start:end])
    return messages, controls


@QUICK
@given(
    st.lists(st.binary(min_size=1, max_size=3000), min_size=1, max_size=4),
    st.sampled_from([bytes(4), b"\x01\x02\x03\x04", b"\xff\x00\xff\x00"]),
    st.data(),
)
def test_messages_come_out_whole_however_they_were_cut(payloads, mask, data) -> None:
    sent = b"".join(masked(Opcode.BINARY, each, mask) for each in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))

    assert read(sent, cuts)[0] == payloads


def test_a_message_may_come_in_parts_with_a_ping_between_them() -> None:
    mask = b"abcd"
    sent = (
        masked(Opcode.BINARY, b"one ", mask, final=False)
        + masked(Opcode.PING, b"?", mask)
        + masked(Opcode.CONTINUATION, b"two", mask)
        + masked(Opcode.CLOSE, b"\x03\xe8", mask)
    )

    assert read(sent, [3]) == ([b"one two"], [(Opcode.PING, b"?"), (Opcode.CLOSE, b"\x03\xe8")])


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\x01x",
        b"\xf2\x81" + bytes(5),
        b"\x83\x81" + bytes(5),
        masked(Opcode.CONTINUATION, b"x", bytes(4)),
        masked(Opcode.BINARY, b"x", bytes(4), final=False) * 2,
        masked(Opcode.PING, b"x" * 126, bytes(4)),
        masked(Opcode.PING, b"x", bytes(4), final=False),
        b"\x82\xff" + b"\xff" * 8 + bytes(4),
    ],
)
def test_frames_that_break_the_protocol_are_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        read(data, [])


@QUICK
@given(st.binary(max_size=200))
def test_noise_is_waited_for_or_refused(data: bytes) -> None:
    try:
        read(data, [])
    except FrameError:
        return


def test_the_handshake_proves_itself_as_in_the_standard() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_the_compression_dictionary_is_the_protocols_own() -> None:
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)


async def spdy(data: bytes, pieces: int) -> tuple[bytes, list[dict[str, str]], list[bytes]]:
    """What a server answers to `data`, the headers of the streams opened, and what came on them."""
    answered, opened, came = [], [], []

    async def send(piece: bytes) -> None:
        answered.append(piece)

    async def sink(piece: bytes) -> None:
        came.append(piece)

    def on_stream(stream) -> bool:
        stream.sink = sink
        opened.append(dict(stream.headers))
        return "refuse" not in stream.headers

    connection = SpdyConnection(send, on_stream)
    for start in range(0, len(data), pieces):
        await connection.feed(data[start : start + pieces])
    return b"".join(answered), opened, came


def syn_stream(compressor, number: int, headers: dict[str, str]) -> bytes:
    plain = struct.pack(">I", len(headers))
    for name, value in headers.items():
        plain += struct.pack(">I", len(name)) + name.encode() + struct.pack(">I", len(value)) + value.encode()
    block = compressor.compress(plain) + compressor.flush(zlib.Z_SYNC_FLUSH)
    payload = struct.pack(">IIBB", number, 0, 0, 0) + block
    return struct.pack(">HHI", 0x8003, 1, len(payload)) + payload


@pytest.mark.parametrize("pieces", [1, 7, 10_000])
async def test_streams_are_opened_refused_and_carry_data(pieces: int) -> None:
    compressor = zlib.compressobj(zdict=DICTIONARY)
    sent = (
        syn_stream(compressor, 1, {"StreamType": "data", "port": "80"})
        + syn_stream(compressor, 3, {"refuse": "me"})
        + struct.pack(">II", 1, 5)
        + b"hello"
        + struct.pack(">II", 99, 2)
        + b"??"
        + struct.pack(">HHII", 0x8003, 6, 4, 7)
        + struct.pack(">II", 1, 1 << 24)
    )

    answered, opened, came = await spdy(sent, pieces)

    assert opened == [{"streamtype": "data", "port": "80"}, {"refuse": "me"}]
    assert came == [b"hello", b""]
    assert struct.pack(">HHIII", 0x8003, 3, 8, 3, 3) in answered
    assert struct.pack(">HHII", 0x8003, 6, 4, 7) in answered


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">HHI", 0x8002, 1, 0),
        struct.pack(">HHI", 0x8003, 1, 0),
        struct.pack(">HHI", 0x8003, 1, 14) + struct.pack(">IIBB", 1, 0, 0, 0) + b"junk",
        struct.pack(">HHI", 0x8003, 1, 1 << 20),
        struct.pack(">HHI", 0x8003, 3, 1) + b"x",
    ],
)
async def test_spdy_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(SpdyError):
        await spdy(data, 10_000)


@pytest.mark.parametrize("numbers", [[2], [1, 2], [1, 1], [0]])
async def test_streams_of_a_client_have_odd_numbers_of_their_own(numbers: list[int]) -> None:
    compressor = zlib.compressobj(zdict=DICTIONARY)
    data = b"".join(syn_stream(compressor, number, {"streamtype": "data"}) for number in numbers)

    with pytest.raises(SpdyError, match="out of turn"):
        await spdy(data, 10_000)
