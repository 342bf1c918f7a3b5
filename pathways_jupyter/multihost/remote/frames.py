"""Frames between the client and its program on a host: a JSON header, and bytes."""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Where the hosts' Python need not import it, as in the other modules here: that takes longer than a short run.
    from collections.abc import Iterator
    from typing import Any

    Frame = tuple[dict[str, Any], bytes]

MAX_PAYLOAD_BYTES = 256 * 1024 * 1024
"""The largest payload; only the list of a very large directory comes near it."""

_HEAD = struct.Struct(">II")


def encode(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return one frame as bytes."""
    head = json.dumps(header, separators=(",", ":")).encode()
    return b"".join((_HEAD.pack(len(head), len(payload)), head, payload))


class Decoder:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add `data`, and yield the frames that are complete now.

        Raises:
          ValueError: The bytes are not frames; usually a login script on the host prints something.
        """
        self._received += data
        start = 0
        try:
            while len(self._received) - start >= _HEAD.size:
                head, payload = _HEAD.unpack_from(self._received, start)
                if head > MAX_PAYLOAD_BYTES or payload > MAX_PAYLOAD_BYTES:
                    raise ValueError("not a frame")
                begin = start + _HEAD.size
                end = begin + head + payload
                if len(self._received) < end:
                    break
                header = json.loads(self._received[begin : begin + head])
                content = bytes(memoryview(self._received)[begin + head : end])
                start = end
                yield header, content
        finally:
            # Once for all frames of a read: removing from the front copies what is left.
            del self._received[:start]
