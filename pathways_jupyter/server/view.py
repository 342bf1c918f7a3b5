"""The cluster that one page looks at, through all that may happen to it meanwhile.

A scope may mean another cluster from one minute to the next: the current context is changed, the embedded cluster ends
and another one starts, credentials are renewed. So a view resolves its scope again when the kubeconfig changed or the
cluster cannot be reached, and moves to the cluster that the scope means then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pathways_jupyter.errors import ClusterError, LocalClusterError, PathwaysError
from pathways_jupyter.kube.auth import NoKubeconfigError
from pathways_jupyter.server import scope as scopes
from pathways_jupyter.server.scope import Place, Scope
from pathways_jupyter.service.clusterwatch import identity

if TYPE_CHECKING:
    from pathways_jupyter.server.hub import Hub
    from pathways_jupyter.service.clusterwatch import ClusterWatch

CHECK_SECONDS = 3.0
"""Between two looks at the files that say what a scope means."""
LONGEST_PAUSE_SECONDS = 30.0
"""Between two attempts to resolve the scope of a cluster that cannot be reached: each may ask Google."""

_FAULT = "This is a fault of pathways_jupyter; see the log of the Jupyter server."

logger = logging.getLogger(__name__)


class ClusterView:
    """What one page sees of a cluster.

    Args:
      send: Takes each message to the page. It must not raise.
    """

    def __init__(self, hub: Hub, send: Callable[[dict[str, Any]], None]) -> None:
        self._hub = hub
        self._send = send
        self._scope = Scope()
        self._shown: Scope | None = None
        self._place: Place | None = None
        self._watch: ClusterWatch | None = None
        self._problem: dict[str, Any] | None = None
        self._task: asyncio.Task[None] | None = None

    def look(self, scope: Scope | None) -> None:
        """Look at the cluster of `scope` from now on, or at none."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if scope is None:
            self._leave()
            return
        self._scope, self._problem = scope, None
        self._task = self._hub.spawn(self._keep_looking(scope))

    def close(self) -> None:
        """Look at nothing any more."""
        self.look(None)

    async def _keep_looking(self, scope: Scope) -> None:
        pause = CHECK_SECONDS
        while True:
            # Before resolving, so that a change during it counts as one after it.
            seen = await asyncio.to_thread(scopes.fingerprint)
            try:
                self._show(await self._resolve(scope))
            except PathwaysError as error:
                self._fail(error)
            except Exception as error:
                # The page must be notified, or it would wait for ever.
                logger.exception("looking at %s", scope)
                self._fail(PathwaysError(f"The cluster could not be found: {error!r}", hint=_FAULT))
            waited = 0.0
            while await asyncio.to_thread(scopes.fingerprint) == seen:
                if waited >= pause and not (self._watch is not None and self._watch.is_live):
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                    break
                await asyncio.sleep(CHECK_SECONDS)
                waited += CHECK_SECONDS
            else:
                pause = CHECK_SECONDS

    async def _resolve(self, scope: Scope) -> Place:
        try:
            return await scopes.resolve(scope)
        except PathwaysError:
            was_embedded = self._place is not None and self._place.scope.local
            if was_embedded and not await asyncio.to_thread(scopes.embedded_cluster_runs):
                # "There is no kubeconfig" would be true as well, but it is not what happened.
                raise LocalClusterError(
                    "The embedded cluster of this machine has ended.",
                    hint="Start it again: %pathways connect --local, or pathways-jupyter local up.",
                ) from None
            raise

    def _show(self, place: Place) -> None:
        """Send the page what is known of `place`, and every change; no-op while it is the place in view already."""
        watch = self._hub.watch_cluster(place.cluster)
        shown = self._place is not None and self._place.scope == place.scope and self._shown == self._scope
        if shown and watch is self._watch:
            return
        self._leave()
        # Also when only the name by which the page asks has changed: it gets everything again under the new name, and
        # because the identity is the same it need not empty its tables in between.
        self._place, self._watch, self._shown, self._problem = place, watch, self._scope, None
        self._publish({"type": "named", "named": place.scope.to_json(), "identity": identity(place.cluster)})
        watch.add(self._publish)

    def _fail(self, error: PathwaysError) -> None:
        """Send the page why its scope means no cluster at the moment."""
        if self._watch is not None and self._shown == self._scope and isinstance(error, ClusterError):
            # Google cannot be asked where the cluster is, most likely because nothing can be reached from here. The
            # watch says so itself, above tables that are old but not wrong.
            return
        self._leave()
        self._shown = self._scope
        # A page greets a new user in a way of its own, and shows no error.
        nothing = isinstance(error, NoKubeconfigError) and not self._scope.context
        problem = {"message": str(error), "hint": error.hint, "nothing_set_up": nothing}
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
        """Send what a watch says, with the scope by which the page asked for it.

        While another scope is being resolved, that is the former one: the page knows that it is no answer to its last
        question.
        """
        assert self._shown is not None
        self._send({**message, "scope": self._shown.to_json()})
