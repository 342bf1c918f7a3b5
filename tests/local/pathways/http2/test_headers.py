"""Header blocks."""

import pytest

from pathways_jupyter.local.pathways.http2 import headers
from pathways_jupyter.local.pathways.http2.frames import ProtocolError


def test_what_is_written_is_read_again():
    fields = [(b":status", b"200"), (b"grpc-message", b"x" * 1000), (b"empty", b"")]
    assert list(headers.decode(headers.encode(fields))) == fields


def test_the_fixed_table_is_known_from_end_to_end():
    assert headers.decode(bytes([0x82, 0x83, 0x84])) == ((b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"))
    assert headers.decode(bytes([0x80 | 61])) == ((b"www-authenticate", b""),)


def test_names_of_the_table_take_values_in_every_form():
    for first in (0x44, 0x04, 0x14):  # to be remembered, not remembered, never remembered; the name is :path
        assert headers.decode(bytes([first, 2]) + b"/a") == ((b":path", b"/a"),)


def test_binary_metadata_comes_as_it_is():
    assert headers.decode(headers.encode([(b"key-bin", b"\0\xff\x00\x01")])) == ((b"key-bin", b"\xff\x00\x01"),)


@pytest.mark.parametrize(
    "block",
    [
        b"\x00\x05ab",  # ends in the middle of a name
        b"\x00",  # ends before one
        bytes([0x80 | 62]),  # an entry of the dynamic table, which is not used
        b"\x00\x81\xff\x00",  # Huffman's code
        b"\x3f\xe1\x1f",  # a table of 4096 bytes
        b"\xff\xff\xff\xff\xff\xff\xff",  # a number without an end
        b"\x00\x7f" + b"\x80" * 40 + b"\x00" + b"n" * 127 + b"\x00",  # a small number, spelled at any length
    ],
)
def test_anything_else_is_refused(block):
    with pytest.raises(ProtocolError):
        headers.decode(block)
