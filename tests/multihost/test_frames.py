"""The wire between the client and its program on a host: whatever the pieces in which bytes arrive, nothing changes."""

import os
import random

import pytest

from pathways_jupyter.multihost.pack import pack
from pathways_jupyter.multihost.remote.content_store import PIECE_BYTES, Store
from pathways_jupyter.multihost.remote.frames import Decoder, encode
from pathways_jupyter.multihost.spool import Spool

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


@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
@pytest.mark.parametrize("kind", ["text", "noise", "text, then noise", "noise, then text"])
async def test_content_arrives_as_it_was(tmp_path, size, kind):
    noise, text = random.Random(size).randbytes(size), (b"all work and no play " * (size // 21 + 1))[:size]
    half = size // 2
    content = {
        "text": text,
        "noise": noise,
        "text, then noise": text[:half] + noise[half:],
        "noise, then text": noise[:half] + text[half:],
    }[kind]
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "file").write_bytes(content)
    packed = pack(tmp_path / "code")
    digest = packed.files[0].content
    store, decoder = Store(str(tmp_path / "store")), Decoder()
    with Spool(packed) as spool:
        async for piece, _ in spool.frames([digest]):
            for header, payload in decoder.feed(piece):
                assert store.add(header["hash"], header["codec"], payload, last=header["last"])
    assert store.give(digest, str(tmp_path / "arrived"))
    assert (tmp_path / "arrived").read_bytes() == content
    store.close(keep=False)
    assert os.listdir(tmp_path / "store") == []
