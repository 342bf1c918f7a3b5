"""Retries of requests to an API server, with backoff, where that is safe.

Requests that were never sent, idempotent ones, and any that the server rejected because it is overloaded or has just
started. A server that has never answered is retried for `unknown` seconds only, so that a wrong address is reported at
once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from pathways_jupyter.base import slow_answers
from pathways_jupyter.base.errors import ApiError, ConnectionLost, Unreachable
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import problems

if TYPE_CHECKING:
    from pathways_jupyter.kube.cluster_access import Cluster

_BUSY = {429, 503}
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
# A 403 of an API server in its first second, when it has read no roles.
_WITHOUT_ROLES = re.compile(r"RBAC: .*not found", re.DOTALL)
_ROLES_SECONDS = 3.0
"""Time for which a 403 of an API server that does not know its roles yet is retried; it learns them within a second."""

_T = TypeVar("_T")


class Retries:
    """Retries of one client's requests.

    Args:
      cluster: Returns the cluster as it is reached at the moment.
      patience: Seconds for which a request is retried while the server cannot be reached, once it has answered at all.
      unknown: The same for a server that has never answered and refuses or resets connections.

    Attributes:
      has_answered: Whether the server has ever answered, so that it is worth waiting for.
    """

    def __init__(self, cluster: Callable[[], Cluster], patience: float, unknown: float) -> None:
        self.has_answered = False
        self._cluster = cluster
        self._patience = patience
        self._unknown = unknown

    async def run(self, attempt: Callable[[], Awaitable[_T]], *, again: bool, patience: float | None = None) -> _T:
        """Run `attempt` until it succeeds, its error is final, or `patience` is over.

        Args:
          again: Whether the request may reach the server twice.
          patience: Seconds, instead of the client's own.
        """
        with slow_answers.waiting_for(f"the API server {self._cluster().server}, or of what makes credentials for it"):
            return await self._run(attempt, again, patience)

    async def _run(self, attempt: Callable[[], Awaitable[_T]], again: bool, patience: float | None) -> _T:
        # With jitter, so that the kernels of a hub do not all return at the same moment after an outage.
        seconds = self._patience if patience is None else patience
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=seconds)
        renewed = tried = False
        may_come_until = time.monotonic() + self._unknown
        roles: Backoff | None = None
        while True:
            try:
                return await attempt()
            except TimeoutError as error:
                # The server may be working on it, so only what may be repeated is sent again.
                if not again or not self.has_answered or backoff.is_over:
                    raise problems.unreachable(error, self._cluster().server) from error
            except Unreachable as error:
                # Nothing was sent, so even a POST is safe to retry; but only if this server has ever answered, or what
                # is wrong may be over in a moment, as in a VPN that reconnects.
                may_come = error.may_pass and time.monotonic() < may_come_until
                if backoff.is_over or not (self.has_answered or may_come):
                    raise
            except ConnectionLost:
                # The likely cause is a pooled connection that the server closed just now. A server that has never
                # answered gets one more attempt in any case.
                may_come = not tried or time.monotonic() < may_come_until
                if not again or backoff.is_over or not (self.has_answered or may_come):
                    raise
            except ApiError as error:
                # A token may have been revoked before its expiry. Renew it once; a second 401 is final.
                if error.status == 401 and not renewed and await self._cluster().credentials.renew():
                    renewed = True
                    continue
                if error.status == 403 and _WITHOUT_ROLES.search(str(error)):
                    # Nothing was done, so any request may be sent again. With a limit of its own, because a watch has
                    # no patience, and because the answer stays the same where a binding names a role that is gone.
                    roles = roles or Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=_ROLES_SECONDS)
                    if roles.is_over:
                        raise
                    await roles.wait()
                    continue
                backoff.delay(error.retry_after)
                if error.status not in _BUSY or backoff.is_over:
                    raise
            tried = True
            await backoff.wait()
