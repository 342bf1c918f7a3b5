"""Several watches read as one, for what is made of objects of more than one kind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Self

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.kube.objects import Resource
from pathways_jupyter.kube.watch import Change


async def if_allowed(changes: AsyncGenerator[Change, None]) -> AsyncGenerator[Change, None]:
    """Yield the changes of a watch whose objects only explain others: none where watching them is forbidden."""
    with contextlib.suppress(ApiError):
        async with contextlib.aclosing(changes):
            async for change in changes:
                yield change


class WatchGroup:
    """The changes of several watches as they come; use it as an async context manager.

    Each watch is read in a task of its own: a generator ends when a wait for its next value is cancelled, as a timeout
    does, or something else that is waited for at the same time.

    Args:
      watches: By what they are of; they are closed at the end. One may end by itself.
    """

    def __init__(self, watches: Mapping[Resource, AsyncGenerator[Change, None]]) -> None:
        self._watches = watches
        self._arrived: list[tuple[Resource, Change]] = []
        # Set when something has arrived, or an error has ended a watch.
        self._news = asyncio.Event()
        self._reading: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._reading = [asyncio.create_task(self._read(*each)) for each in self._watches.items()]
        return self

    async def __aexit__(self, *_: object) -> None:
        await tasks.stop(*self._reading)

    async def batch(self, seconds: float | None = None) -> list[tuple[Resource, Change]]:
        """Wait until something changes, for `seconds` at most; return all changes since the last call, maybe none.

        Raises:
          ApiError: Watching one of the kinds is forbidden, or it does not exist.
          ClusterError: The server could not be reached at the start.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        for each in self._reading:
            if each.done():
                each.result()
        self._news.clear()
        arrived, self._arrived = self._arrived, []
        return arrived

    async def _read(self, resource: Resource, changes: AsyncGenerator[Change, None]) -> None:
        try:
            async with contextlib.aclosing(changes):
                async for change in changes:
                    self._arrived.append((resource, change))
                    self._news.set()
        except Exception:
            self._news.set()
            raise
