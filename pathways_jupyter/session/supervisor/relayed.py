"""The way from the supervisor to the relay, which all connections to the proxy share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pathways_jupyter.errors import ApiError, ClusterError
from pathways_jupyter.kube.podport import Remote, Target
from pathways_jupyter.service.relay.replay import Pool
from pathways_jupyter.service.relay.wire import Hello
from pathways_jupyter.session.supervisor.resumable import ATTACH_SECONDS, Resumable

NOTICE_SECONDS = 0.5
"""An interruption that is over sooner is not reported."""
IDLE_SECONDS = 60.0
"""Longest time without a sign of life while no program uses the tunnel; shorter where a proxy is kept for less."""

_RELOAD_SECONDS = 3.0
# What waits for the relay's acknowledgement: 6 MB in all, 4 MB for one connection. The relay keeps as much for a proxy
# that does not read, so it cannot be larger than what the relay has memory for.
_POOL_BLOCKS, _STREAM_BLOCKS = 24, 16

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Notices:
    """What is called when the way to the relay changes.

    Attributes:
      interrupted: The way is cut, with the reason; the connections wait for another one.
      restored: All connections have a way again, after so many seconds.
      reload: Load the cluster's address and credentials again, because of this error, or of silence.
    """

    interrupted: Callable[[str], None]
    restored: Callable[[float], None]
    reload: Callable[[ClusterError], Awaitable[None]]


class Relayed:
    """The way to a relay, which all connections of one tunnel share.

    Args:
      target: The relay's port.
      secret: The session's secret, 32 bytes.
      keep: Seconds for which a cut way is tried again.
    """

    def __init__(self, target: Target, secret: bytes, keep: float, notices: Notices) -> None:
        self.target = target
        self.secret = secret
        self.keep = keep
        self.pool = Pool(_POOL_BLOCKS, _STREAM_BLOCKS)
        self._notices = notices
        self._connections: set[Resumable] = set()
        self._broken: set[Resumable] = set()
        self._since = 0.0
        self._notice: asyncio.TimerHandle | None = None
        self._reported = self._proven = False
        self._idling: asyncio.Task[None] | None = None
        self._reloaded = 0.0

    async def open(self) -> Resumable:
        """Open a connection to the proxy.

        Raises:
          PortRefused: The relay or the proxy does not listen.
          ClusterError: The relay could not be reached; after the first success only once `keep` is over.
        """
        made = Resumable(self)
        self._connections.add(made)
        try:
            await made.start(patient=self._proven)
        except BaseException:
            self.forget(made)
            raise
        self._proven = True
        if self._idling is None:
            self._idling = asyncio.create_task(self._show_signs_of_life())
        return made

    async def close(self) -> None:
        """End every connection, and wait for their tasks."""
        if self._notice is not None:
            self._notice.cancel()
        if self._idling is not None:
            self._idling.cancel()
            await asyncio.gather(self._idling, return_exceptions=True)
        await asyncio.gather(*(each.end() for each in tuple(self._connections)))

    async def _show_signs_of_life(self) -> None:
        """Say hello now and then while there is no connection, or the relay would take this session for dead."""
        while True:
            await asyncio.sleep(min(IDLE_SECONDS, self.keep / 4))
            if not self._connections:
                # A way that is cut now shows when there is a connection again.
                with contextlib.suppress(ClusterError, TimeoutError):
                    async with asyncio.timeout(ATTACH_SECONDS):
                        await self._say_hello()

    async def _say_hello(self) -> None:
        remote = await Remote.open(self.target, patience=0)
        try:
            # For a stream that does not exist, so that the relay need not connect to the proxy.
            await remote.send(Hello(self.secret, os.urandom(16), 1, 0, is_new=False).encode())
            await remote.answered.wait()
        finally:
            remote.close()

    def broken(self, connection: Resumable, error: ClusterError) -> None:
        """Note that `connection` has lost its way."""
        logger.info("the way to the relay is cut: %s", error)
        loop = asyncio.get_running_loop()
        if not self._broken:
            self._since = self._reloaded = loop.time()
            self._notice = loop.call_later(NOTICE_SECONDS, self._report, str(error))
        self._broken.add(connection)

    def restored(self, connection: Resumable) -> None:
        """Note that `connection` has a way again, or needs none any more."""
        if connection not in self._broken:
            return
        self._broken.discard(connection)
        if not self._broken:
            seconds = asyncio.get_running_loop().time() - self._since
            logger.info("the way to the relay was cut for %.2f s", seconds)
            if self._notice is not None:
                self._notice.cancel()
            if self._reported:
                self._reported = False
                self._notices.restored(seconds)

    def forget(self, connection: Resumable) -> None:
        """Note that `connection` has ended."""
        self._connections.discard(connection)
        self.restored(connection)

    async def failed(self, error: ClusterError) -> None:
        """Note that an attempt failed; the cluster may have moved, or its credentials may have expired."""
        now = asyncio.get_running_loop().time()
        if now - self._reloaded > _RELOAD_SECONDS or (isinstance(error, ApiError) and now - self._reloaded > 1.0):
            self._reloaded = now
            await self._notices.reload(error)

    def _report(self, reason: str) -> None:
        self._reported = True
        self._notices.interrupted(reason)
