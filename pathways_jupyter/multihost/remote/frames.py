"""Frames between the client and its program on a host: a JSON header, and bytes."""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Where the hosts' Python need not import it, as in the other modules here: that takes longer than a short run.
    from collections.abc import Iterator
    from typing import Any

    Frame = tuple[dict[str, Any], memoryview]

MAX_PAYLOAD_BYTES = 256 * 1024 * 1024
"""The largest payload; only the manifest of a very large directory comes near it."""

_HEAD = struct.Struct(">II")


def encode(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """Return one frame as bytes."""
    head = json.dumps(header, separators=(",", ":")).encode()
    return b"".join((_HEAD.pack(len(head), len(payload)), head, payload))


class Decoder:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._received: list[bytes | memoryview] = []
        self._size = 0
        self._needed = _HEAD.size

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add `data`, and yield the frames that are complete now.

        Raises:
          ValueError: The bytes are not frames; usually a login script on the host prints something.
        """
        self._received.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return
        # Joined once for each frame that spans reads; the payloads of frames within one read are not copied at all.
        view = memoryview(data if len(self._received) == 1 else b"".join(self._received))
        start, self._needed = 0, _HEAD.size
        try:
            while len(view) - start >= _HEAD.size:
                head, payload = _HEAD.unpack_from(view, start)
                if head > MAX_PAYLOAD_BYTES or payload > MAX_PAYLOAD_BYTES:
                    raise ValueError("not a frame")
                begin = start + _HEAD.size
                end = begin + head + payload
                if len(view) < end:
                    self._needed = end - start
                    break
                header = json.loads(str(view[begin : begin + head], "utf-8"))
                start = end
                yield header, view[begin + head : end]
        finally:
            self._received = [view[start:]] if start < len(view) else []
            self._size = len(view) - start
