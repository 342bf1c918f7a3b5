"""Renew a proxy's Lease, warn when that fails, and explain why a Lease expired.

A supervisor that does not run (the computer slept, or the process was stopped) renews no Lease. The errors on waking (a
broken connection, a removed proxy) do not name the cause, and the event loop may process them before the overdue
timers. So the clocks are compared on every query, not only when a timer fires.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from pathways_jupyter.base.errors import ApiError, ClusterError
from pathways_jupyter.base.events import EventKind
from pathways_jupyter.base.sentences import advice, say
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.clock import boot_seconds
from pathways_jupyter.service import leases
from pathways_jupyter.session.supervisor.session_log import SessionLog

_TICK_SECONDS = 0.5
_LEAST_SECONDS = 1.5
"""Shorter gaps are normal on a busy machine."""


@dataclass(frozen=True)
class Pause:
    """A period in which this process did not run.

    Attributes:
      ended: When it ended, in :func:`~pathways_jupyter.kube.clock.boot_seconds`.
      asleep: Whether the whole computer slept; False when only this process was stopped.
    """

    seconds: float
    ended: float
    asleep: bool

    def __str__(self) -> str:
        if self.asleep:
            return f"This computer slept for {self.seconds:.0f} s"
        return f"The session's supervisor did not run for {self.seconds:.0f} s"


class PauseWatch:
    """Records the last pause of this process while :meth:`run` is running."""

    def __init__(self) -> None:
        self._last: Pause | None = None
        self._seen, self._seen_awake = boot_seconds(), time.monotonic()

    async def run(self) -> None:
        """Compare the clocks every half second."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.last()

    def last(self) -> Pause | None:
        """Return the last pause, including one that ended just now; None when there was none."""
        seen, awake = boot_seconds(), time.monotonic()
        # What exceeds the interval of a timer that fires on time.
        paused = seen - self._seen - _TICK_SECONDS
        if paused > _LEAST_SECONDS:
            # The monotonic clock stops while the computer sleeps, the other one does not.
            slept = (seen - self._seen) - (awake - self._seen_awake)
            self._last = Pause(paused, seen, asleep=slept > paused / 2)
        self._seen, self._seen_awake = seen, awake
        return self._last


logger = logging.getLogger(__name__)

_FAILURES_BEFORE_WARNING = 2
"""Consecutive failures before a warning; half of the Lease's time is left then."""
_RECENT_SECONDS = 30.0
"""How long after a pause a loss is attributed to it, even if the Lease has been renewed since."""
_LONG_SECONDS = 10.0
"""A pause of this length breaks connections even if the Lease survives it."""


class LeaseKeeper:
    """Renews the Lease of one proxy Job.

    Args:
      keep: How long the proxy is kept without a renewal because of its relay, in seconds; 0 without one.
      on_gone: Called with the reason when the Lease no longer exists, which means that the proxy is being removed.
    """

    def __init__(
        self, client: Client, session_log: SessionLog, job: str, on_gone: Callable[[str], None], *, keep: float
    ) -> None:
        self._client = client
        self._session_log = session_log
        self._job = job
        self._on_gone = on_gone
        self._keep = keep
        self._seconds = session_log.config.lease_seconds
        self._renewed = boot_seconds()
        self._pauses = PauseWatch()

    async def check(self) -> None:
        """Renew the Lease once, right away, so that a missing permission surfaces before the proxy is used.

        Raises:
          ApiError: Renewing is forbidden, or failed.
        """
        try:
            await self._renew()
        except ApiError as error:
            if error.status not in {401, 403}:
                raise
            why = f"Without it the proxy counts as abandoned, and is removed, {self._seconds:.0f} s after it was made."
            raise ApiError(
                f"The proxy's Lease cannot be renewed: {error}",
                status=error.status,
                reason=error.reason,
                hint=advice("{hint} {why}", hint=error.hint, why=why) if error.hint else why,
            ) from error
        self._renewed = boot_seconds()

    async def run(self) -> None:
        """Renew the Lease until it no longer exists."""
        noticing = asyncio.create_task(self._pauses.run())
        failures = 0
        try:
            while True:
                await asyncio.sleep(self._seconds / leases.RENEWALS_PER_LEASE)
                try:
                    if not await self._renew():
                        self._on_gone(say("The proxy's Lease was deleted, by a sweep or by hand."))
                        return
                    failures, self._renewed = 0, boot_seconds()
                except ClusterError as error:
                    logger.warning("lease: %s", error)
                    failures += 1
                    if failures == _FAILURES_BEFORE_WARNING:
                        self._warn(error)
        finally:
            noticing.cancel()

    async def _renew(self) -> bool:
        record = self._session_log.counted()
        figures = record.figures().to_json()
        return await leases.renew(self._client, self._job, namespace=record.namespace, figures=figures)

    def explain(self, reason: str, *, removed: bool) -> str:
        """Return why the proxy is lost: `reason`, or the pause of this process that caused it.

        Args:
          reason: The observed symptom.
          removed: Whether the proxy's Job is gone from the cluster.
        """
        pause, at = self._pauses.last(), boot_seconds()
        if pause is None or (pause.ended < self._renewed and at - pause.ended > _RECENT_SECONDS):
            return reason
        if at - self._renewed < max(self._seconds, self._keep):
            # The proxy survived; a short pause breaks nothing by itself.
            return f"{pause}. {reason}" if pause.seconds > _LONG_SECONDS else reason
        option, ended = "--lease-seconds", f"its lease expired after {self._seconds:.0f} s"
        if self._keep > self._seconds:
            option, ended = "--keep", f"arrays are kept for {self._keep:.0f} s without a connection"
        enough = math.ceil(pause.seconds / 600) * 600
        advice = f"Connect with {option} {enough} to keep the proxy through such a pause."
        then = " and the proxy was removed." if removed else f". {reason}"
        return f"{pause}; {ended}{then} {advice}"

    def _warn(self, error: ClusterError) -> None:
        left = max(0.0, self._seconds - (boot_seconds() - self._renewed))
        then = f"expires in {left:.0f} s"
        if self._keep:
            then += f"; after that the proxy is kept for {self._keep:.0f} s in all, unless its slices are needed"
        message = f"The proxy's Lease cannot be renewed and {then}: {error} {error.hint}"
        self._session_log.report(EventKind.WARNING, message.strip())
