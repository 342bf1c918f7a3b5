"""Bounds on the connections to the cluster's servers: on those of unknown clients, and on idle streams.

Every user of the machine can connect to a port on loopback. Without a bound on connections that have not authenticated,
another user's half-open ones, which cost that user nothing, would use up the server's file descriptors.

The kubelet cuts a port-forward or an exec without traffic. It counts messages in either direction, empty ones included.
It does not count WebSocket pings: its library answers them without reporting them. A client that wants to keep a quiet
connection open must send messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

STREAM_IDLE_SECONDS = 4 * 3600.0
"""The default of the kubelet's ``streamingConnectionIdleTimeout``."""


class Newcomers:
    """The connections whose client has not yet shown a token or secret.

    Args:
      most: How many there may be. The oldest is dropped for the next: an honest client needs only milliseconds.
      seconds: How long each may take.
    """

    def __init__(self, *, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._all: dict[Newcomer, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, drop: Callable[[], object]) -> Newcomer:
        """Add a connection; `drop` ends it when its time is over, or when there are too many."""
        while len(self._all) >= self._most:
            self._drop(next(iter(self._all)))
        newcomer = Newcomer(self, drop)
        self._all[newcomer] = asyncio.get_running_loop().call_later(self._seconds, self._drop, newcomer)
        return newcomer

    def drop_all(self) -> None:
        """End every one of them."""
        for newcomer in list(self._all):
            self._drop(newcomer)

    def discard(self, newcomer: Newcomer) -> None:
        """Forget a connection that has authenticated or ended."""
        if (timer := self._all.pop(newcomer, None)) is not None:
            timer.cancel()

    def _drop(self, newcomer: Newcomer) -> None:
        self.discard(newcomer)
        newcomer.drop()


class Newcomer:
    """One of these connections; `drop` ends it, in a way that the owner changes as the connection progresses."""

    def __init__(self, newcomers: Newcomers, drop: Callable[[], object]) -> None:
        self.drop = drop
        self._newcomers = newcomers

    def leave(self) -> None:
        """Stop counting it: it has authenticated, or ended."""
        self._newcomers.discard(self)


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
