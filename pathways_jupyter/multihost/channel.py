"""What a transport provides: a program on a host, with bytes in and out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from pathways_jupyter.multihost.targets import Target


class Channel(Protocol):
    """A running program on a host.

    Its methods raise :class:`~pathways_jupyter.multihost.errors.HostUnreachable` when the connection is lost.
    """

    async def write(self, data: bytes) -> None:
        """Send `data` to the program; waits while the connection is full."""

    async def read(self) -> bytes:
        """Return what the program has written; empty at its end."""

    async def close(self) -> None:
        """Close the connection."""

    def complaint(self) -> str:
        """Return the last line that the program wrote to its standard error."""


Connect = Callable[[Target, list[str]], Awaitable[Channel]]
"""Start a program, given as its arguments, on a host."""
