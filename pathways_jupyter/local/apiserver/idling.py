"""The kubelet's idle timeout of streams, which cuts a port-forward or an exec without traffic.

A kubelet counts messages in either direction, empty ones included. It does not count WebSocket pings: its library
answers them without reporting them. A client that wants to keep a quiet connection open must send messages.
"""

from __future__ import annotations

import asyncio
from typing import cast

STREAM_IDLE_SECONDS = 4 * 3600.0
"""The default of the kubelet's ``streamingConnectionIdleTimeout``."""


class IdleTimer:
    """Cuts a connection after `seconds` without a :meth:`touch`; :meth:`stop` it when the connection ends."""

    def __init__(self, transport: asyncio.BaseTransport | None, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._seconds = seconds
        self._touched = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._check)

    def touch(self) -> None:
        """Note a message. Called for every piece of a tunnel's data, so it does not reschedule the timer."""
        self._touched = self._loop.time()

    def stop(self) -> None:
        """Cancel the timer."""
        self._timer.cancel()

    def _check(self) -> None:
        left = self._touched + self._seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check)
        elif self._transport is not None:
            # A kubelet's deadline applies to writing as well, so the client gets no closing frame from it either.
            cast("asyncio.Transport", self._transport).abort()
