"""One proxy of a session: it starts, is lost for a reason, and is closed.

A session creates one (:mod:`.own_proxy`), or uses that of a job (:mod:`.borrowed_proxy`).

The supervisor decides when there is a proxy; these modules implement the steps. Independent steps run concurrently: the
pod is watched while the Lease is created, and the tunnel opens while slices are being placed.
"""

from __future__ import annotations

import abc
import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ClusterError, PathwaysError, ServiceError
from pathways_jupyter.base.events import Stage
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import Object
from pathways_jupyter.session.supervisor import proxy_end
from pathways_jupyter.session.supervisor.pod_watch import PodEnded, PodWatch
from pathways_jupyter.session.supervisor.proxy_slices import ProxySlices
from pathways_jupyter.session.supervisor.proxy_tunnel import REASON_SECONDS, ProxyTunnel, RelayKey
from pathways_jupyter.session.supervisor.session_log import SessionLog
from pathways_jupyter.tunnel.carrier import PodPort, PortRefused

_CLOSED_SECONDS = 2.5
"""Time for which a port that is not open is nothing to report: programs listen some time after their container starts.
With the log, which takes at most two seconds, a user knows within five."""


class Proxy(abc.ABC):
    """A proxy: its pod, which is watched, its slices, and the tunnel to it.

    Args:
      client: The cluster's client; the caller closes it.
      session_log: Receives all events.

    Attributes:
      job: The Job of this session that owns all it has in the cluster; None if there is none, or not yet.
    """

    def __init__(self, client: Client, session_log: SessionLog) -> None:
        self.job: Object | None = None
        self._client = client
        self._session_log = session_log
        self._config = session_log.config
        self._began = time.monotonic()
        self._slices = ProxySlices(client, session_log, self._stage)
        self._watch = PodWatch(lambda words: self._stage(Stage.START, words))
        self._tunnel = ProxyTunnel(client, session_log, self._lose)
        # The reason why it is unusable, though its pod may live.
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        # Longest time for each step from the pod to the tunnel, in seconds.
        self._patience = self._config.timeout

    @abc.abstractmethod
    async def start(self) -> None:
        """Get the proxy, and return when JAX can connect to it.

        Raises:
          PathwaysError: It did not start. What there is in the cluster stays; :class:`.ProxyCycle` removes it.
        """

    @property
    def is_lost(self) -> bool:
        """Return whether it is unusable; :meth:`lost` may still be looking for the reason."""
        return self._lost.done() or self._watch.lost.done()

    async def lost(self) -> str:
        """Wait until the proxy is unusable, and return the reason."""
        await asyncio.wait({self._lost, self._watch.lost}, return_when=asyncio.FIRST_COMPLETED)
        # A tunnel usually breaks because its pod is gone. Wait briefly for the pod's own, more precise reason.
        await asyncio.wait({self._watch.lost}, timeout=REASON_SECONDS)
        gone = self._watch.lost if self._watch.lost.done() else self._lost
        return await self._why_gone(gone.result())

    def cut(self) -> int | None:
        """Drop the tunnel's connections to the relay; return how many there were, None without a relay."""
        return self._tunnel.cut()

    async def close(self) -> None:
        """Stop the tasks and close the tunnel; the objects in the cluster stay."""
        await tasks.stop(*self._tasks)
        await self._tunnel.close()
        await self._watch.close()

    @abc.abstractmethod
    async def _why_gone(self, reason: str) -> str:
        """Return `reason` with its cause, as far as the cluster says it."""

    async def _ready(self) -> Object:
        """Return the pod once it is ready.

        Raises:
          ServiceError: It ended, or is not ready in time.
        """
        try:
            async with asyncio.timeout(self._patience):
                pod = await self._watch.ready
        except PodEnded as error:
            record = self._session_log.record
            raise await proxy_end.before_use(self._client, record, error.pod, str(error), error.hint) from error
        except TimeoutError as error:
            raise ServiceError(
                f"The proxy did not start within {self._patience:.0f} s: {self._watch.last_seen}",
                hint=advice("Check that a node has room for it, or raise {timeout}."),
            ) from error
        name = pod["metadata"]["name"]
        self._session_log.update(pod=name)
        self._stage(Stage.START, f"Pod {name} is ready.", pod=name, done=True)
        return pod

    async def _open_tunnel(
        self,
        pod: Object,
        port: int,
        *,
        relay: RelayKey | None = None,
        reason: str = "",
        flaw: ServiceError | None = None,
    ) -> None:
        """Open the tunnel to a port of `pod`, and report a port that is not open, with the last line of the log.

        Args:
          relay: See :meth:`ProxyTunnel.open`.
          reason: The sentence why there is a tunnel.
          flaw: What can keep the proxy from ever listening; with one, a port that is not open is not waited for.
        """
        metadata = pod["metadata"]
        target = PodPort(self._client, metadata["namespace"], metadata["name"], port)
        refused = self._when_closed(f"Port {port} of pod {target.pod}", target.pod, flaw)
        try:
            await self._tunnel.open(
                target, relay=relay, pod_gone=self._watch.lost, seconds=self._patience, on_refused=refused
            )
        except ClusterError as error:
            # The tunnel failed because the pod has ended: that is the error to report.
            if self._watch.lost.done():
                raise await self._ended() from error
            if isinstance(error, PortRefused):
                raise ServiceError(f"{error}{await self._log_says(target.pod)}", hint=error.hint) from error
            raise
        opened = f"The tunnel is open. {reason}" if reason else "The tunnel is open."
        self._stage(Stage.TUNNEL, opened, done=True)

    def _when_closed(self, what: str, pod: str, flaw: ServiceError | None = None) -> Callable[[], Awaitable[None]]:
        """Return the function to await whenever the proxy has refused a connection: it reports that now and then.

        Args:
          what: The port, for the beginning of a sentence.
          flaw: As for :meth:`_open_tunnel`.
        """
        pause = _CLOSED_SECONDS
        look_at = time.monotonic() + pause

        async def refused() -> None:
            nonlocal look_at, pause
            if time.monotonic() < look_at:
                return
            message = f"{what} is not open yet.{await self._log_says(pod)}"
            self._stage(Stage.TUNNEL, message)
            if flaw is not None:
                raise ServiceError(f"{flaw} {message}", hint=flaw.hint)
            # Its log goes on, and the news is less each time.
            pause *= 2
            look_at = time.monotonic() + pause

        return refused

    async def _log_says(self, pod: str) -> str:
        """Return a sentence with the last line of the log of the proxy in `pod`; empty if there is none."""
        return await proxy_end.log_says(self._client, self._session_log.record, pod, any_line=True)

    async def _ended(self) -> PathwaysError:
        """Return the error for a proxy that ended, or that can no longer be watched, before it could be used."""
        if self._watch.error is not None:
            # The pod may have been ready when it was listed, and only watching it be forbidden.
            return self._watch.error
        record = self._session_log.record
        problem = f"The proxy ended before it could be used. {self._watch.lost.result()}"
        hint = advice("Try again; {doctor} looks for the cause.")
        if not self._watch.was_deleted:
            hint = advice("Older services end a proxy when all slices are taken: {slices} shows who holds them.")
        return await proxy_end.before_use(self._client, record, record.pod, problem, hint)

    def _lose(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def _stage(self, stage: Stage, message: str, **data: Any) -> None:
        self._session_log.stage(stage, message, elapsed=round(time.monotonic() - self._began, 4), **data)
