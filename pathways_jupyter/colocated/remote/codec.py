"""Encoding of requests and replies as bytes, since only arrays travel between a notebook and its hosts.

JSON with a table of binary parts, not a pickle: what a host answers is read without running anything. Values of hosts
are written as JSON by `value_writer.py` and read by the notebook; both name the kinds of values as here.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import json
import pathlib
import struct
from typing import Any

SEQUENCES: dict[str, Any] = {each.__name__: each for each in (list, tuple, set, frozenset)}
MAPPINGS: dict[str, Any] = {each.__name__: each for each in (dict, collections.OrderedDict, collections.Counter)}
TEXTS: dict[str, Any] = {
    **{each.__name__: each for each in (datetime.datetime, datetime.date, datetime.time, decimal.Decimal)},
    "Path": type(pathlib.Path()),
}
"""Times are written in ISO format, others as their text."""
FACTORIES: dict[str, Any] = {"": None, **{each.__name__: each for each in (int, float, str, list, dict, set)}}
"""Those that a defaultdict may have."""

_SIZES = struct.Struct("<QI")


def encode(head: dict[str, Any], blobs: list[bytes] | None = None) -> bytes:
    """Write `head` (JSON values only) and binary parts as one message that carries its own length."""
    blobs = blobs or []
    text = json.dumps([head, [len(blob) for blob in blobs]]).encode()
    total = _SIZES.size + len(text) + sum(len(blob) for blob in blobs)
    return b"".join((_SIZES.pack(total, len(text)), text, *blobs))


def length(data: bytes) -> int:
    """Return the whole message's length in bytes, read from its beginning."""
    return int(_SIZES.unpack_from(data)[0])


def decode(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Return what :func:`encode` was given; what follows the message is ignored."""
    _, text_length = _SIZES.unpack_from(data)
    position = _SIZES.size + text_length
    head, sizes = json.loads(data[_SIZES.size : position])
    blobs = []
    for size in sizes:
        blobs.append(bytes(data[position : position + size]))
        position += size
    return head, blobs
