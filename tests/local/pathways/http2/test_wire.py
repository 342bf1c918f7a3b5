"""Header blocks."""

import pytest

from pathways_jupyter.local.pathways.http2.wire import decode_headers, encode_headers


def test_what_is_written_is_read_again():
    fields = [(b":status", b"200"), (b"grpc-message", b"x" * 1000), (b"empty", b"")]
    assert list(decode_headers(encode_headers(fields))) == fields


def test_the_fixed_table_is_known_from_end_to_end():
    assert decode_headers(bytes([0x82, 0x83, 0x84])) == (
        (b":method", b"GET"),
        (b":method", b"POST"),
        (b":path", b"/"),
    )
    assert decode_headers(bytes([0x80 | 61])) == ((b"www-authenticate", b""),)


def test_names_of_the_table_take_values_in_every_form():
    for first in (0x44, 0x04, 0x14):  # to be remembered, not remembered, never remembered; the name is :path
        assert decode_headers(bytes([first, 2]) + b"/a") == ((b":path", b"/a"),)


def test_binary_metadata_comes_as_it_is():
    assert decode_headers(encode_headers([(b"key-bin", b"\0\xff\x00\x01")])) == ((b"key-bin", b"\xff\x00\x01"),)


@pytest.mark.parametrize("block", [bytes([0x80 | 62]), b"\x00\x81\xff\x00"], ids=["dynamic table", "Huffman coding"])
def test_what_was_not_agreed_on_is_refused(block):
    with pytest.raises((IndexError, ValueError)):
        decode_headers(block)
