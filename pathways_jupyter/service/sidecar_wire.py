"""How a proxy and the sidecars of its hosts speak, in the embedded cluster.

A proxy opens one connection to each sidecar, on a unix socket of the sidecar's pod. Messages go both ways: a line of
JSON, and binary parts behind it, whose sizes the line gives. Requests carry a number; their answers may come in any
order. The first message is the proxy's hello; what follows is described by the two programs, which are released
together and need no versions.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import threading
from collections.abc import Sequence
from typing import Any

from pathways_jupyter.service.aligned import aligned

Header = dict[str, Any]

_LONGEST_LINE = 64 << 20
_LONGEST_HELLO = 1 << 20
_LARGEST_PART = 1 << 40
"""In bytes; no host has as much, so a larger number is not a size."""


class WireError(Exception):
    """The other side is gone, or does not speak this."""


class Connection:
    """One end; any thread may send, one thread receives."""

    def __init__(self, peer: socket.socket) -> None:
        self._socket = peer
        self._reader = io.BufferedReader(socket.SocketIO(peer, "r"), 1 << 16)
        self._lock = threading.Lock()

    def send(self, header: Header, parts: Sequence[memoryview | bytes] = ()) -> None:
        """Sends one message.

        Args:
          parts: Contiguous bytes, in any format that `memoryview` can cast to bytes.

        Raises:
          WireError: The other side is gone.
        """
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        line = json.dumps({**header, "parts": [len(part) for part in parts]}).encode() + b"\n"
        try:
            with self._lock:
                self._socket.sendall(line)
                for view in views:
                    self._socket.sendall(view)
        except OSError as error:
            raise WireError(str(error)) from error

    def receive(self) -> tuple[Header, list[memoryview]]:
        """The next message, its parts in memory of their own.

        Raises:
          WireError: There is none.
        """
        try:
            header = self._header(_LONGEST_LINE)
            return header, [self._part(size) for size in header["parts"]]
        except (OSError, ValueError, KeyError, TypeError, MemoryError) as error:
            raise WireError(str(error) or type(error).__name__) from error

    def receive_hello(self, timeout: float) -> Header:
        """The first message, from a peer that has not proved anything yet: short, in time, and without parts.

        Args:
          timeout: Seconds that each piece of it may take.

        Raises:
          WireError: There is none, or not such a one.
        """
        try:
            self._socket.settimeout(timeout)
            header = self._header(_LONGEST_HELLO)
            self._socket.settimeout(None)
        except OSError as error:
            raise WireError(str(error)) from error
        if header.get("parts"):
            raise WireError("a hello has no parts")
        return header

    def close(self) -> None:
        """Closes the connection; whoever receives gets an error."""
        # Shutting down, unlike closing, wakes a thread that is reading.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _header(self, longest: int) -> Header:
        line = self._reader.readline(longest)
        if not line.endswith(b"\n"):
            raise WireError("the connection was closed, or a line was too long")
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            raise WireError(f"not a message: {error}") from error

    def _part(self, size: int) -> memoryview:
        if not isinstance(size, int) or not 0 <= size <= _LARGEST_PART:
            raise WireError(f"{size!r:.40} is not the size of a part")
        part = aligned(size)
        position = 0
        while position < size:
            count = self._reader.readinto(part[position:])
            if not count:
                raise WireError("the connection was closed in the middle of a message")
            position += count
        return part
