"""Bound on connections that have not authenticated: few at a time, and each for a short time.

Every user of the machine can connect to a port on loopback. Without this bound another user's half-open connections,
which cost that user nothing, would use up the server's file descriptors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


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
    """One such connection; `drop` ends it, in a way that the owner changes as the connection progresses."""

    def __init__(self, newcomers: Newcomers, drop: Callable[[], object]) -> None:
        self.drop = drop
        self._newcomers = newcomers

    def leave(self) -> None:
        """Stop counting it: it has authenticated, or ended."""
        self._newcomers.discard(self)
