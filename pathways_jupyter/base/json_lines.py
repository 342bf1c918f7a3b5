"""One JSON object a line: messages between processes of this package, over sockets and pipes.

Not for programs that run where this package is not installed, such as those of ``multihost/remote/``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_BYTES = 1 << 20
"""Limit of a line for a reader that does not trust its peer."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Return `message` as one line, with its newline."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the message of a line, with its newline or without.

    Raises:
      ValueError: It is empty, as a closed connection's last line is, or is not a JSON object. An object that was cut
        off is not one.
    """
    if not line:
        raise ValueError("the connection was closed")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise ValueError(f"not a JSON object: {line[:80]!r}")
    return message
