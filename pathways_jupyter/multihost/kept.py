"""Connections that a notebook keeps between its runs, so that the next one begins at once.

They belong to one event loop, that of a background thread, and so do all runs that use them.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pathways_jupyter import blocking
from pathways_jupyter.multihost.channel import Connect
from pathways_jupyter.multihost.hostsession import HostSession, Sessions
from pathways_jupyter.multihost.targets import Target

KEPT_SECONDS = 600.0
"""How long a connection without use is kept."""
_CLOSE_SECONDS = 2.0

_Key = tuple[str, Target]


@dataclass
class Kept:
    """The open connections without use, and the loop that they belong to."""

    background: blocking.Background = field(default_factory=blocking.Background)
    process: int = field(default_factory=os.getpid)
    free: dict[_Key, HostSession] = field(default_factory=dict)
    timers: dict[_Key, asyncio.TimerHandle] = field(default_factory=dict)

    def take(self, key: _Key) -> HostSession | None:
        """Return the connection with `key`, which is the caller's from now on; None if there is none."""
        if (timer := self.timers.pop(key, None)) is not None:
            timer.cancel()
        return self.free.pop(key, None)

    def put(self, key: _Key, session: HostSession) -> None:
        """Keep `session` for a while."""
        loop = asyncio.get_running_loop()
        self.free[key] = session
        self.timers[key] = loop.call_later(KEPT_SECONDS, lambda: loop.create_task(self._expire(key)))

    async def close(self) -> None:
        """Close all connections."""
        keys = list(self.free)
        await asyncio.gather(*(self._expire(key) for key in keys), return_exceptions=True)

    async def _expire(self, key: _Key) -> None:
        if (session := self.take(key)) is not None:
            await session.close()


class KeptSessions(Sessions):
    """Sessions of one kind of connection that are kept after their use."""

    def __init__(self, connect: Connect, kept: Kept, connection: Mapping[str, Any]) -> None:
        super().__init__(connect)
        self._kept = kept
        self._login = json.dumps(dict(connection), sort_keys=True)

    async def _open(self, target: Target) -> HostSession:
        """Return the kept session with `target` if it still works, or else a new one."""
        session = self._kept.take((self._login, target))
        if session is not None:
            if await session.works():
                return session
            await session.close()
        return await super()._open(target)

    async def release(self, session: HostSession) -> None:
        """Keep `session`, unless something on it is unfinished, or another one is kept already."""
        key = (self._login, session.target)
        if session.idle and key not in self._kept.free:
            self._kept.put(key, session)
        else:
            await session.close()


_kept: Kept | None = None


def here() -> Kept:
    """Return the connections of this process."""
    global _kept
    # After a fork there is no background thread.
    if _kept is None or _kept.process != os.getpid():
        _kept = Kept()
        atexit.register(close)
    return _kept


def close() -> None:
    """Close the connections of this process."""
    if _kept is None or _kept.process != os.getpid():
        return

    async def in_time() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await kept.close()

    kept = _kept
    blocking.run(in_time(), kept.background)
