"""Connections to the cluster that the settings name, opened while a supervisor stands by: a connect need not wait.

A new connection takes two round trips, TCP's and TLS's, before its first request. Neither needs a token, so no
credential plugin runs: the user has only loaded the extension. Failures are not reported, since a connect reports them.
"""

from __future__ import annotations

import asyncio
import logging

from pathways_jupyter.base import setting_sources
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import auth
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.clock import boot_seconds
from pathways_jupyter.kube.cluster_access import Cluster

logger = logging.getLogger(__name__)

_CONNECTIONS = 5
"""As many as a connect uses at once first, so that each has carried a request before one of them creates the Job."""
_REFRESH_SECONDS = 40.0
"""Pause before each is used again; with a quarter more still less than the 60 s after which the client closes it."""
_KEPT_SECONDS = 300.0
_STALE_SECONDS = 60.0
"""Connections without an answer for so long are not used: this machine was asleep, or the network was gone."""
_UNKNOWN_SECONDS = 3.0
"""Longest time of attempts while the API server refuses the first connection: as long as a VPN reconnects."""


class EarlyConnections:
    """The connections of a supervisor from before its session; none until :meth:`open`."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to open them, and keep them open for some minutes, if the settings name a cluster of a kubeconfig."""
        self._task = asyncio.create_task(self._keep())

    def client(self, cluster: Cluster, *, unknown: float = _UNKNOWN_SECONDS) -> Client:
        """Return the client of a session on `cluster`, with these connections if they lead there.

        Those to another cluster are closed.

        Args:
          unknown: Seconds of attempts while the API server refuses the first connection.
        """
        early, self._client = self._client, None
        if early is not None:
            is_fresh = boot_seconds() - early.last_received < _STALE_SECONDS
            if is_fresh and early.cluster.identity == cluster.identity:
                return early
            early.close()
        return Client(cluster, unknown=unknown)

    async def _keep(self) -> None:
        try:
            config = setting_sources.resolve({})
            # The embedded cluster may not run yet, and Google is asked for a named one's address, with a token.
            if config.local or config.cluster:
                return
            cluster = auth.of_config(config)
            # A pod is beside its API server; and nothing may look like another identity's use without credentials.
            if not cluster.identity or cluster.headers:
                return
            client = self._client = Client(cluster, unknown=_UNKNOWN_SECONDS)
            refreshes = Backoff(_REFRESH_SECONDS, _REFRESH_SECONDS, seconds=_KEPT_SECONDS)
            async for _ in refreshes:
                if self._client is not client or refreshes.is_over:
                    break
                await client.open_unauthenticated(_CONNECTIONS)
        except (PathwaysError, OSError) as error:
            # Once and for all: whether the cluster can be reached later, a connect sees.
            logger.info("no connections are kept open: %s", error)
        finally:
            unused, self._client = self._client, None
            if unused is not None:
                async with unused:
                    pass
