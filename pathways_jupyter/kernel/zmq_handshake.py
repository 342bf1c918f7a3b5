"""The handshake of a front end with a kernel's socket, which both ends of the stream have with the program beside them.

The peers of ZMQ greet each other, then each says what kind of socket it has, and libzmq says only then what its program
has sent: two and a half round trips until the first answer. What a kernel would say is known. So the front end gets it
from the near end, at once, and all that it says is on its way to the kernel, or waits there for one that starts. The
pod's end drops what the kernel says of itself, and waits for that before it goes on, as libzmq expects.

Source: https://rfc.zeromq.org/spec/23 (ZMTP 3.0).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pathways_jupyter.tunnel.local_connection import LocalConnection

SOCKETS = {"shell": b"ROUTER", "iopub": b"PUB", "stdin": b"ROUTER", "control": b"ROUTER", "hb": b"ROUTER"}
"""Sockets of a kernel, numbered from 1, with their types."""

_CELL, _ANSWER = b'"execute_request"', b'"execute_reply"'
"""Kinds of messages as they are in headers. In a cell's text, which is JSON too, the quotation marks are escaped."""

_OPENING = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03"
"""Signature and major version, which the near end says to all; then the other peer says all of its greeting."""
_MINOR_AT = len(_OPENING)
_NULL = b"NULL".ljust(20, b"\0")
"""The mechanism without encryption, which the connections of kernels have: their messages are signed."""
_MECHANISM = slice(_MINOR_AT + 1, _MINOR_AT + 1 + len(_NULL))
_GREETING_BYTES = 64
_COMMAND, _LONG = 4, 2
"""Flags of a frame: it is no message; its size takes eight bytes."""


class Occurrences:
    """Counts a word in bytes that come in pieces."""

    def __init__(self, word: bytes) -> None:
        self._word = word
        self._end = b""
        self.count = 0

    def add(self, data: bytes) -> int:
        """Count those in the next piece, and return their number."""
        said = self._end + data
        self._end, number = said[1 - len(self._word) :], said.count(self._word)
        self.count += number
        return number


class FrontEndConnection(LocalConnection):
    """A front end's connection to the near end; one task may read, and one may write.

    Args:
      accepted: Called with this object when the connection is there.
      socket: Name of the kernel's socket.
    """

    def __init__(self, accepted: Callable[[LocalConnection], None], socket: str) -> None:
        super().__init__(accepted)
        self._has_cells = socket == "shell"
        self._cells, self._answers = Occurrences(_CELL), Occurrences(_ANSWER)
        self._type = SOCKETS[socket]
        # As far as it has arrived; None once it has been answered.
        self._greeting: bytearray | None = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the greeting."""
        super().connection_made(transport)
        self._transport.write(_OPENING)

    def data_received(self, data: bytes) -> None:
        """Answer the greeting, and keep all for the reader."""
        if self._has_cells:
            self._cells.add(data)
        if self._greeting is None:
            super().data_received(data)
            return
        self._greeting += data
        answered = _is_answered(self._greeting)
        if answered is None:
            return
        if answered:
            # What 3.1 does differently depends on what both say, and nothing is known of the kernel's ZMQ.
            self._greeting[_MINOR_AT] = 0
            name = b"Socket-Type"
            ready = b"\x05READY" + bytes([len(name)]) + name + len(self._type).to_bytes(4, "big") + self._type
            rest = b"\0" + _NULL + bytes(_GREETING_BYTES - _MECHANISM.stop)
            self._transport.write(rest + bytes([_COMMAND, len(ready)]) + ready)
        greeting, self._greeting = bytes(self._greeting), None
        super().data_received(greeting)

    async def write(self, data: memoryview) -> None:
        """Send `data`, which must not change afterwards, to the front end; wait while it reads slowly.

        Raises:
          ConnectionError: The front end has closed the connection.
        """
        if self._has_cells:
            self._answers.add(bytes(data))
        await super().write(data)

    @property
    def awaits_answer(self) -> bool:
        """Return whether a cell that has come here was not answered yet."""
        return self._cells.count > self._answers.count


class KernelConnection(LocalConnection):
    """The pod's connection to the kernel for a front end's; one task may read, and one may write.

    Args:
      accepted: Called with this object when the connection is there.
    """

    def __init__(self, accepted: Callable[[LocalConnection], None]) -> None:
        super().__init__(accepted)
        # Until all was said that comes before messages: by the front end, and by the kernel.
        self._front_end: bytearray | None = bytearray()
        self._kernel = bytearray()
        self._is_answered: bool | None = None
        self._met = asyncio.Event()

    async def write(self, data: memoryview) -> None:
        """Send `data`, which must not change afterwards, to the kernel; wait while it reads slowly.

        Raises:
          ConnectionError: The kernel has closed the connection.
        """
        if self._front_end is not None:
            self._front_end += data
            if self._is_answered is None:
                self._is_answered = _is_answered(self._front_end)
            if self._is_answered is None or (begin := self._said(self._front_end)) > len(self._front_end):
                return
            said, self._front_end = memoryview(bytes(self._front_end)), None
            self._drop()
            if self._is_answered:
                await super().write(said[:begin])
                # libzmq takes a message for a fault that comes before it has said what kind of socket it has.
                await self._met.wait()
                said = said[begin:]
            data = said
        if data:
            await super().write(data)

    def data_received(self, data: bytes) -> None:
        """Keep a piece for the reader, but for what the near end has said already."""
        if self._met.is_set():
            super().data_received(data)
        else:
            self._kernel += data
            self._drop()

    def connection_lost(self, error: Exception | None) -> None:
        """Note the end in both directions."""
        # A writer that waits finds the connection closed.
        self._met.set()
        super().connection_lost(error)

    def _drop(self) -> None:
        if self._is_answered is not None and (size := self._said(self._kernel)) <= len(self._kernel):
            self._met.set()
            if rest := bytes(self._kernel[size:]):
                super().data_received(rest)

    def _said(self, said: bytearray) -> int:
        """Return how many bytes of a peer the near end knows; more than `said` while that is not known."""
        if not self._is_answered:
            return len(_OPENING)
        begin = _GREETING_BYTES + (9 if len(said) > _GREETING_BYTES and said[_GREETING_BYTES] & _LONG else 2)
        return begin + int.from_bytes(said[_GREETING_BYTES + 1 : begin], "big") if len(said) >= begin else begin


def _is_answered(greeting: bytearray) -> bool | None:
    """Return whether the near end answers a front end with this greeting; None while that is not known."""
    if len(greeting) < len(_OPENING):
        return None
    # An older ZMQ, or something else, is the kernel's to answer.
    if greeting[: len(_OPENING)] != _OPENING:
        return False
    return greeting[_MECHANISM] == _NULL if len(greeting) >= _GREETING_BYTES else None
