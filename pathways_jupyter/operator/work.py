"""A queue of keys to reconcile: one task per key at a time, and failures again with backoff."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from pathways_jupyter.errors import PathwaysError

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 60.0
_PARALLEL = 8
"""Keys that are reconciled at the same time."""

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Calls `reconcile` with every key that was added, until :meth:`close`.

    A key that is added while it is being reconciled is reconciled once more afterwards, because the change may have
    come after the reconcile read it.

    Args:
      failed: Called with a key and the error of its reconcile, which is tried again.
    """

    def __init__(self, reconcile: Callable[[K], Awaitable[None]], failed: Callable[[K, PathwaysError], None]) -> None:
        self._reconcile = reconcile
        self._failed = failed
        self._running: dict[K, asyncio.Task[None]] = {}
        self._again: set[K] = set()
        self._room = asyncio.Semaphore(_PARALLEL)

    def add(self, key: K) -> None:
        """Reconcile `key` soon."""
        if key in self._running:
            self._again.add(key)
        else:
            self._running[key] = asyncio.create_task(self._run(key))

    async def close(self) -> None:
        """Stop all work; a request that is being sent is cut off, which every reconcile has to survive anyway."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: K) -> None:
        pause = _FIRST_PAUSE_SECONDS
        try:
            while True:
                self._again.discard(key)
                try:
                    async with self._room:
                        await self._reconcile(key)
                except PathwaysError as error:
                    self._failed(key, error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                    continue
                if key not in self._again:
                    return
                pause = _FIRST_PAUSE_SECONDS
        finally:
            # In the same step as the check above, so that no key is added in between and forgotten.
            del self._running[key]
