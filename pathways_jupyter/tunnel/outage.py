"""Report when streams have lost their carriers, and when all of them have one again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pathways_jupyter.base.errors import ApiError, ClusterError
from pathways_jupyter.kube.watch import is_refusal

NOTICE_SECONDS = 0.5
"""An interruption that is over sooner is not reported."""

_RELOAD_SECONDS = 3.0
_RELOAD_AFTER_REFUSAL_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Outage:
    """The streams of one tunnel that have no carrier; any object may stand for a stream.

    Args:
      interrupted: Called with the reason when the connection to the relay is cut, and streams wait for other carriers;
        once more when the cluster does not let this user in again, with what to do.
      restored: Called when all streams have a carrier again, after so many seconds.
      reload: Loads the cluster's address and credentials again, because of this error, or of silence.
    """

    def __init__(
        self,
        interrupted: Callable[[str], None],
        restored: Callable[[float], None],
        reload: Callable[[ClusterError], Awaitable[None]],
    ) -> None:
        self._interrupted = interrupted
        self._restored = restored
        self._reload = reload
        self._streams: set[object] = set()
        self._since = self._reloaded = 0.0
        # The time of the first refusal of this user in this outage, and whether it was reported.
        self._refused_since = 0.0
        self._is_refusal_reported = False
        self._notice: asyncio.TimerHandle | None = None
        self._is_reported = False

    def begin(self, stream: object, error: ClusterError) -> None:
        """Note that `stream` has lost its carrier."""
        logger.info("the connection to the relay is cut: %s", error)
        # The first stream begins the outage; the others, whose carriers break with it, only join.
        if not self._streams:
            loop = asyncio.get_running_loop()
            self._since = self._reloaded = loop.time()
            self._refused_since, self._is_refusal_reported = 0.0, False
            self._notice = loop.call_later(NOTICE_SECONDS, self._report, str(error))
        self._streams.add(stream)

    def end(self, stream: object) -> None:
        """Note that `stream` has a carrier again."""
        if stream not in self._streams:
            return
        self._streams.discard(stream)
        if not self._streams:
            seconds = asyncio.get_running_loop().time() - self._since
            logger.info("the connection to the relay was cut for %.2f s", seconds)
            # No notice any more: an outage that ends before it is reported neither as begun nor as over.
            self.close()
            if self._is_reported:
                self._is_reported = False
                self._restored(seconds)

    def lose(self, stream: object) -> None:
        """Note that `stream` will have no carrier any more: it is lost or was closed, and not restored."""
        # Without restored(), whatever was reported: what comes next is the proxy's loss, or the tunnel's end.
        self._streams.discard(stream)
        if not self._streams:
            self.close()
            self._is_reported = False

    async def attempt_failed(self, error: ClusterError) -> None:
        """Load the cluster again now and then: it may have moved, or its credentials may have expired.

        Only the user can do something about credentials that are refused although they were loaded again.
        """
        now = asyncio.get_running_loop().time()
        # Credentials that cannot even be had are an error of no narrower class.
        if is_refusal(error) or type(error) is ClusterError:
            self._refused_since = self._refused_since or now
            if not self._is_refusal_reported and now - self._refused_since > _RELOAD_AFTER_REFUSAL_SECONDS:
                self.close()
                self._is_refusal_reported = True
                self._report(f"{error} {error.hint}".strip())
        least = _RELOAD_AFTER_REFUSAL_SECONDS if isinstance(error, ApiError) else _RELOAD_SECONDS
        if now - self._reloaded > least:
            self._reloaded = now
            await self._reload(error)

    def close(self) -> None:
        """Report nothing that is not reported yet."""
        if self._notice is not None:
            self._notice.cancel()
            self._notice = None

    def _report(self, reason: str) -> None:
        self._is_reported = True
        self._interrupted(reason)
