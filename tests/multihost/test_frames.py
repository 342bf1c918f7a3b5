"""The wire between the client and its program on a host: whatever the pieces in which bytes arrive, nothing changes."""

import pytest

from pathways_jupyter.multihost.remote.frames import Decoder, encode

FRAMES = [({"op": "a"}, b""), ({"op": "b", "text": "é"}, b"x"), ({"op": "c"}, bytes(range(256)) * 20), ({}, b"")]


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 100, 4096, 1 << 20])
def test_frames_do_not_depend_on_how_the_stream_is_cut(size):
    stream = b"".join(encode(*frame) for frame in FRAMES)
    decoder = Decoder()
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    # Kept while more arrives: a payload must not change under its reader.
    found = [frame for piece in pieces for frame in decoder.feed(piece)]
    assert [(header, bytes(payload)) for header, payload in found] == FRAMES


def test_what_is_not_a_frame_is_refused():
    with pytest.raises(ValueError, match="not a frame"):
        list(Decoder().feed(b"Welcome to this host!\n"))
