"""Renew a proxy's Lease, warn when that fails, and explain why a Lease expired.

A supervisor that does not run (the computer slept, or the process was stopped) renews no Lease. The errors on waking (a
broken connection, a removed proxy) do not name the cause.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from pathways_jupyter.base.errors import ApiError, ClusterError, ServiceError
from pathways_jupyter.base.events import EventKind
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.clock import boot_seconds
from pathways_jupyter.service import leases
from pathways_jupyter.session.supervisor.session_log import SessionLog

logger = logging.getLogger(__name__)

_FAILURES_BEFORE_WARNING = 2
"""Consecutive failures before a warning; half of the Lease's time is left then."""
_CLOCK_SECONDS = 1.0
"""Largest difference between two clients' ideas of the API server's time: it says whole seconds."""


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
        # When the last renewal of the Lease was sent, on a clock that goes on while the computer sleeps, and how long
        # after the one before: on waking, it may still be there for a moment when its Job is gone.
        self._renewed, self._gap = boot_seconds(), 0.0

    async def check(self) -> None:
        """Renew the Lease once, right away, so that a missing permission surfaces before the proxy is used.

        Raises:
          ServiceError: It no longer exists.
          ApiError: Renewing is forbidden, or failed.
        """
        sent = boot_seconds()
        try:
            if not await self._renew():
                # The cluster removes it with its Job.
                problem = "The proxy did not start. Its Lease or its Job was deleted, by a sweep or by hand."
                raise ServiceError(problem, hint=advice("Try again."))
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
        # The time before the request: the Lease lasts at least from then on, whenever the server wrote it.
        self._renewed = sent

    async def run(self) -> None:
        """Renew the Lease until it no longer exists."""
        failures = 0
        while True:
            await asyncio.sleep(self._seconds / leases.RENEWALS_PER_LEASE)
            sent = boot_seconds()
            try:
                if not await self._renew():
                    self._on_gone("The proxy's Lease was deleted, by a sweep or by hand.")
                    return
                self._gap, self._renewed, failures = sent - self._renewed, sent, 0
            except ClusterError as error:
                logger.warning("lease: %s", error)
                failures += 1
                if failures == _FAILURES_BEFORE_WARNING:
                    self._warn(error)

    async def _renew(self) -> bool:
        figures = self._session_log.figures(relay=self._keep > 0).to_json()
        namespace = self._session_log.record.namespace
        return await leases.renew(self._client, self._job, namespace=namespace, figures=figures)

    def explain(self, reason: str) -> str:
        """Return why the proxy was removed: `reason`, or that its Lease had expired."""
        silent = max(self._gap, boot_seconds() - self._renewed)
        if silent <= max(self._seconds, self._keep) - _CLOCK_SECONDS:
            return reason
        option, ended = "--lease-seconds", f"its lease expires after {self._seconds:.0f} s"
        if self._keep > self._seconds:
            option, ended = "--keep", f"arrays are kept for {self._keep:.0f} s without a connection"
        # In steps of ten minutes.
        enough = math.ceil(silent / 600) * 600
        return (
            f"The session was silent for {silent:.0f} s, as while a computer sleeps; {ended}, and the proxy was "
            f"removed. Connect with {option} {enough} to keep the proxy through such a pause."
        )

    def _warn(self, error: ClusterError) -> None:
        left = max(0.0, self._seconds - (boot_seconds() - self._renewed))
        then = f"expires in {left:.0f} s"
        if self._keep:
            then += f"; after that the proxy is kept for {self._keep:.0f} s in all, unless its slices are needed"
        message = f"The proxy's Lease cannot be renewed and {then}: {error} {error.hint}"
        self._session_log.report(EventKind.WARNING, message.strip())
