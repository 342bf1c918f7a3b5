"""How a request and a reply are written as bytes, since only arrays travel between a notebook and its hosts.

JSON with a table of binary parts, not a pickle: what a host answers is read without running anything.
"""

from __future__ import annotations

import json
import struct
from typing import Any

_SIZES = struct.Struct("<QI")


def encode(head: dict[str, Any], blobs: list[bytes] | None = None) -> bytes:
    """Writes `head` (JSON values only) and binary parts as one message that carries its own length."""
    blobs = blobs or []
    text = json.dumps([head, [len(blob) for blob in blobs]]).encode()
    total = _SIZES.size + len(text) + sum(len(blob) for blob in blobs)
    return b"".join((_SIZES.pack(total, len(text)), text, *blobs))


def length(data: bytes) -> int:
    """The whole message's length in bytes, read from its beginning."""
    return int(_SIZES.unpack_from(data)[0])


def decode(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The inverse of :func:`encode`; what follows the message is ignored."""
    _, text_length = _SIZES.unpack_from(data)
    position = _SIZES.size + text_length
    head, sizes = json.loads(data[_SIZES.size : position])
    blobs = []
    for size in sizes:
        blobs.append(bytes(data[position : position + size]))
        position += size
    return head, blobs
