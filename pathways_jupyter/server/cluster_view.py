"""The cluster that one page shows, kept up to date while the meaning of its scope changes.

The same scope may resolve to another cluster a minute later: the current context was changed, the embedded cluster
was restarted, credentials were renewed. So a view resolves its scope again when the kubeconfig has changed or the
cluster cannot be reached, and switches to the new cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base.errors import ClusterError, LocalClusterError, NoKubeconfigError, PathwaysError
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.server import scope as scopes
from pathways_jupyter.server.handlers import unexpected
from pathways_jupyter.server.scope import ResolvedScope, Scope
from pathways_jupyter.service.clusterwatch import identity
from pathways_jupyter.session import clusters

if TYPE_CHECKING:
    from pathways_jupyter.server.server_state import ServerState
    from pathways_jupyter.service.clusterwatch import ClusterWatch

CHECK_SECONDS = 3.0
"""Polling interval of the files that a scope depends on."""
LONGEST_PAUSE_SECONDS = 30.0
"""Longest delay between attempts to resolve the scope of an unreachable cluster; each may query Google Cloud."""

logger = logging.getLogger(__name__)


class ClusterView:
    """One page's view of the cluster of one scope.

    Args:
      send: Sends a message to the page; must not raise.
    """

    def __init__(self, server_state: ServerState, scope: Scope, send: Callable[[dict[str, Any]], None]) -> None:
        self._server_state = server_state
        self._scope = scope
        self._send = send
        self._resolved: ResolvedScope | None = None
        self._watch: ClusterWatch | None = None
        self._problem: dict[str, Any] | None = None

    async def show(self) -> None:
        """Send the page the state of the cluster and every change of it, until cancelled."""
        pause = CHECK_SECONDS
        try:
            while True:
                # Taken before resolving, so that a change during the resolution triggers another one.
                seen = await asyncio.to_thread(scopes.fingerprint)
                try:
                    self._show(await scopes.resolve(self._scope))
                except PathwaysError as error:
                    await self._fail(error)
                except Exception as error:
                    # Notify the page, which would wait for ever otherwise.
                    logger.exception("looking at %s", self._scope)
                    await self._fail(unexpected(error))
                waited = 0.0
                while await asyncio.to_thread(scopes.fingerprint) == seen:
                    if waited >= pause and not (self._watch is not None and self._watch.is_live):
                        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                        break
                    await asyncio.sleep(CHECK_SECONDS)
                    waited += CHECK_SECONDS
                else:
                    pause = CHECK_SECONDS
        finally:
            self._leave()

    def _show(self, resolved: ResolvedScope) -> None:
        """Send the state of `resolved` and every change of it; no-op if it is shown already."""
        watch = self._server_state.watch_cluster(resolved.cluster)
        if watch is self._watch and self._resolved is not None and self._resolved.scope == resolved.scope:
            return
        self._leave()
        # Also if only the name of the same cluster has changed: the page receives everything again under the new name,
        # and by the identity it knows that it need not clear its tables.
        self._resolved, self._watch, self._problem = resolved, watch, None
        self._publish({"type": "named", "named": asdict(resolved.scope), "identity": identity(resolved.cluster)})
        watch.add(self._publish)

    async def _fail(self, error: PathwaysError) -> None:
        """Send the page the reason why its scope has no cluster at the moment."""
        was_embedded = self._resolved is not None and self._resolved.scope.local
        if was_embedded and not await asyncio.to_thread(scopes.embedded_cluster_runs):
            # "There is no kubeconfig" would be true too, but it is not the cause.
            error = clusters.embedded_ended()
        if self._watch is not None and isinstance(error, ClusterError):
            # Google Cloud could not be queried, most likely because the network is down. The watch reports that itself,
            # above tables that are stale but not wrong.
            return
        self._leave()
        # A new user without any kubeconfig gets a welcome and not an error.
        nothing = isinstance(error, NoKubeconfigError) and not self._scope.context
        # An embedded cluster that does not run can be started with one click.
        embedded = isinstance(error, LocalClusterError)
        problem = {**error.to_json(Face.SIDEBAR), "nothing_set_up": nothing, "embedded_ended": embedded}
        if problem != self._problem:
            self._problem = problem
            self._publish(
                {"type": "watch", "watch": "failed", "problem": problem, "place": "", "identity": "", "as_of": 0.0}
            )

    def _leave(self) -> None:
        if self._watch is not None:
            self._watch.remove(self._publish)
            self._watch = None

    def _publish(self, message: dict[str, Any]) -> None:
        """Send a message with the scope, by which the page knows whether it belongs to its latest request."""
        self._send({**message, "scope": asdict(self._scope)})
