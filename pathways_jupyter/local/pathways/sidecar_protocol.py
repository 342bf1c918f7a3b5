"""The protocol between a proxy and the sidecars of its hosts, in the embedded cluster.

A proxy opens one connection to each sidecar, on a unix socket of the sidecar's pod. Messages go both ways: a line of
JSON with the sizes of the binary parts that follow it. Requests have a number; their answers may come in any order. The
first message is the proxy's hello; the others are defined by the two programs, which are released together, so that the
protocol needs no versions. Arrays are received into memory that is aligned so that XLA uses it without a copy; the
proxy receives its client's uploads into such memory, too.
"""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from collections.abc import Sequence
from typing import Any

from pathways_jupyter.base import json_lines

_ALIGNMENT = 64
"""In bytes: XLA uses memory with this alignment in place, and copies any other."""


def aligned(size: int) -> memoryview:
    """Return uninitialized memory of `size` bytes that XLA can use without a copy."""
    import numpy as np

    space = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -space.ctypes.data % _ALIGNMENT
    return space.data[skip : skip + size]


STRING = "string"
"""The name of the element type of strings."""

Header = dict[str, Any]


class WireError(Exception):
    """The connection is closed."""


class SidecarConnection:
    """One end of a connection; any thread may send, one thread receives."""

    def __init__(self, peer: socket.socket) -> None:
        self._socket = peer
        self._reader = io.BufferedReader(socket.SocketIO(peer, "r"), 1 << 16)
        self._lock = threading.Lock()

    def send(self, header: Header, parts: Sequence[memoryview | bytes] = ()) -> None:
        """Send one message.

        Args:
          parts: Contiguous buffers that `memoryview` can cast to bytes.

        Raises:
          WireError: The connection is closed.
        """
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        line = json_lines.encode({**header, "parts": [memoryview(part).nbytes for part in parts]})
        try:
            with self._lock:
                self._socket.sendall(line)
                for view in views:
                    self._socket.sendall(view)
        except OSError as error:
            raise WireError(str(error)) from error

    def receive(self) -> tuple[Header, list[memoryview]]:
        """Return the next message, with its parts in newly allocated memory; blocks.

        Raises:
          WireError: The connection is closed.
        """
        try:
            header = json_lines.decode(self._reader.readline())
            return header, [self._part(size) for size in header["parts"]]
        except (OSError, ValueError, KeyError) as error:
            raise WireError(str(error)) from error

    def close(self) -> None:
        """Close the connection; a pending :meth:`receive` raises."""
        # Unlike close(), shutdown() wakes a thread that is blocked in a read.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _part(self, size: int) -> memoryview:
        part = aligned(size)
        position = 0
        while position < size:
            count = self._reader.readinto(part[position:])
            if not count:
                raise WireError("the connection was closed in the middle of a message")
            position += count
        return part


def pack_strings(words: Sequence[bytes]) -> memoryview:
    """Pack strings into one part: where each of them ends, then all of them."""
    import numpy as np

    ends = np.cumsum([len(word) for word in words], dtype=np.uint64)
    return memoryview(ends.tobytes() + b"".join(words))


def unpack_strings(part: memoryview, count: int) -> list[bytes]:
    """Unpack so many strings, as :func:`pack_strings` packs them."""
    import numpy as np

    ends = np.frombuffer(part[: 8 * count], np.uint64).tolist()
    text = bytes(part[8 * count :])
    return [text[start:end] for start, end in zip([0, *ends][:-1], ends, strict=True)]
