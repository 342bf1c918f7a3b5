"""Keep a proxy's Lease renewed, and say when it cannot be, and why it ran out."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from pathways_jupyter.errors import ApiError, ClusterError
from pathways_jupyter.events import EventKind
from pathways_jupyter.kube.client import Client
from pathways_jupyter.service import leases
from pathways_jupyter.session.supervisor import pauses
from pathways_jupyter.session.supervisor.pauses import PauseWatch
from pathways_jupyter.session.supervisor.session_log import SessionLog

logger = logging.getLogger(__name__)

_FAILURES_BEFORE_WARNING = 2
"""Renewals that fail in a row before it is worth a warning; half of the Lease is left then."""
_RECENT_SECONDS = 30.0
"""How long after a pause a loss is put down to it, though the Lease has been renewed since."""
_LONG_SECONDS = 10.0
"""A pause that breaks connections, though the Lease outlives it."""


class LeaseKeeper:
    """Renews the Lease of one proxy Job.

    Args:
      on_gone: Called with the reason when there is no Lease any more, which means that the proxy was given up.
    """

    def __init__(self, client: Client, session_log: SessionLog, job: str, on_gone: Callable[[str], None]) -> None:
        self._client = client
        self._session_log = session_log
        self._job = job
        self._on_gone = on_gone
        self._seconds = session_log.config.lease_seconds
        self._renewed = pauses.now()
        self._pauses = PauseWatch()

    async def check(self) -> None:
        """Renew the Lease for the first time, at once: what is forbidden must be known before anybody relies on it.

        Raises:
          ApiError: Renewing is forbidden.
        """
        try:
            await leases.renew(self._client, self._job, namespace=self._session_log.record.namespace)
        except ApiError as error:
            if error.status not in {401, 403}:
                raise
            why = f"Without it the proxy counts as abandoned, and is removed, {self._seconds:.0f} s after it was made."
            raise ApiError(
                f"The proxy's Lease cannot be renewed: {error}",
                status=error.status,
                reason=error.reason,
                hint=f"{error.hint} {why}".strip(),
            ) from error
        self._renewed = pauses.now()

    async def run(self) -> None:
        """Renew the Lease until it is gone."""
        noticing = asyncio.create_task(self._pauses.run())
        failures = 0
        try:
            while True:
                await asyncio.sleep(self._seconds / leases.RENEWALS_PER_LEASE)
                try:
                    if not await leases.renew(self._client, self._job, namespace=self._session_log.record.namespace):
                        self._on_gone("The proxy's Lease is gone: it was swept, or deleted.")
                        return
                    failures, self._renewed = 0, pauses.now()
                except ClusterError as error:
                    logger.warning("lease: %s", error)
                    failures += 1
                    if failures == _FAILURES_BEFORE_WARNING:
                        self._warn(error)
        finally:
            noticing.cancel()

    def explain(self, reason: str, *, removed: bool) -> str:
        """Return why the proxy is lost: `reason`, unless this process did not run for a while before.

        Args:
          reason: What was noticed.
          removed: Whether the proxy's Job is gone from the cluster.
        """
        pause, now = self._pauses.last(), pauses.now()
        if pause is None or (pause.ended < self._renewed and now - pause.ended > _RECENT_SECONDS):
            return reason
        if now - self._renewed < self._seconds:
            # A short pause breaks nothing by itself.
            return f"{pause}. {reason}" if pause.seconds > _LONG_SECONDS else reason
        enough = math.ceil(pause.seconds / 600) * 600
        advice = f"Connect with --lease-seconds {enough} to keep a proxy through such a pause."
        if removed:
            return f"{pause}; its lease ran out after {self._seconds:.0f} s and the proxy was removed. {advice}"
        return f"{pause}; its lease ran out after {self._seconds:.0f} s. {reason} {advice}"

    def _warn(self, error: ClusterError) -> None:
        left = max(0.0, self._seconds - (pauses.now() - self._renewed))
        self._session_log.report(
            EventKind.WARNING,
            f"The proxy's Lease cannot be renewed, and runs out in {left:.0f} s: {error} {error.hint}".strip(),
        )
