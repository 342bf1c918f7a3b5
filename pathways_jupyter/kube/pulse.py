"""Notice that an API server no longer answers, although its connections are open.

A watch of a quiet namespace receives nothing for minutes, so its silence shows nothing: a server that was stopped, or a
network that swallows packets, looks the same. TCP cannot show it either, because the kernel of a stopped process goes
on to acknowledge. So after some silence the server is asked something small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pathways_jupyter.base.errors import ApiError, ClusterError
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.clock import boot_seconds

QUIET_SECONDS = 4.0
"""After so long without a byte from the server it is asked."""
ANSWER_SECONDS = 5.0
"""Longest wait for its answer: with the silence before, a dead server is noticed within 10 s."""
_LATE_SECONDS = 1.0
"""A timeout that fires so late shows that this process stood still itself."""


class Pulse:
    """Ends the watches of one client as soon as their server has stopped answering.

    One question serves all watches of the client, and none is asked while anything arrives for any of its requests.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waits: set[asyncio.Timeout] = set()

    @contextmanager
    def ends(self, wait: asyncio.Timeout) -> Iterator[None]:
        """Let `wait` time out at once when the server has stopped answering, inside the block."""
        self._waits.add(wait)
        try:
            yield
        finally:
            self._waits.discard(wait)

    async def run(self) -> None:
        """Ask the server after each silence, until cancelled."""
        while True:
            silent = boot_seconds() - self._client.last_received
            if silent < QUIET_SECONDS or not self._waits:
                await asyncio.sleep(max(QUIET_SECONDS - silent, QUIET_SECONDS / 8))
            elif not await self._answers():
                for wait in self._waits:
                    if not wait.expired():
                        wait.reschedule(asyncio.get_running_loop().time())
                self._waits.clear()

    async def _answers(self) -> bool:
        try:
            # Outside of the timeout: a slow credential plugin must not look like an API server that does not answer.
            await self._client.cluster.credentials.authorization()
        except ClusterError:
            # Nothing can be asked; the next request of another kind reports why.
            await asyncio.sleep(QUIET_SECONDS)
            return True
        began = boot_seconds()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._client.get("/version")
        except ApiError:
            # A refusal is an answer.
            return True
        except TimeoutError:
            return boot_seconds() - began > ANSWER_SECONDS + _LATE_SECONDS
        except ClusterError:
            return False
        return True
