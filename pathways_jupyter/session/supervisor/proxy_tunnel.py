"""The session's end of the tunnel to its proxy, with the relay's client where the proxy has a relay."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from pathways_jupyter.base.errors import ApiError, ClusterError, ConnectionLost, Unreachable
from pathways_jupyter.base.events import EventKind
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube.client import Client
from pathways_jupyter.session import clusters
from pathways_jupyter.session.supervisor.session_log import SessionLog
from pathways_jupyter.tunnel import portforward
from pathways_jupyter.tunnel.carrier import PodPort, PortRefused
from pathways_jupyter.tunnel.grpc_connection import GrpcConnection
from pathways_jupyter.tunnel.open_carrier import TooManyStreams
from pathways_jupyter.tunnel.outage import Outage
from pathways_jupyter.tunnel.portforward import Forward
from pathways_jupyter.tunnel.relay.relay_container import RelaySpec
from pathways_jupyter.tunnel.relay.relay_container import port_of as relay_port
from pathways_jupyter.tunnel.relay.wire import SECRET_BYTES
from pathways_jupyter.tunnel.resumable_stream import RelayClient

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
REASON_SECONDS = 1.0
"""Longest wait for the reason that the watch of a pod gives, once something else has shown that it is gone."""


@dataclass(frozen=True)
class RelayKey:
    """The secret that a session shares with its proxy's relay, which knows its hash only.

    Attributes:
      keep: Seconds for which the relay keeps the proxy's connections without one of the session.
    """

    secret: bytes
    keep: float

    @classmethod
    def new(cls, keep: float) -> RelayKey:
        """Return a key with a random secret."""
        return cls(os.urandom(SECRET_BYTES), keep)

    def spec(self, image: str) -> RelaySpec:
        """Return the relay's part of a proxy's pod."""
        return RelaySpec(sha256(self.secret).hexdigest(), image, self.keep)


class ProxyTunnel:
    """The tunnel to one proxy.

    Args:
      client: The cluster's client, which a move of the cluster changes.
      session_log: Receives all events.
      on_loss: Called with the reason when the tunnel has failed for good.
    """

    def __init__(self, client: Client, session_log: SessionLog, on_loss: Callable[[str], None]) -> None:
        self._client = client
        self._session_log = session_log
        self._on_loss = on_loss
        self._forward: Forward | None = None
        self._relay: RelayClient | None = None

    async def open(
        self,
        target: PodPort,
        *,
        relay: RelayKey | None,
        pod_gone: asyncio.Future[str],
        seconds: float,
        on_refused: Callable[[], Awaitable[None]],
    ) -> None:
        """Open the tunnel, and return when the proxy takes connections.

        Args:
          target: The proxy's port.
          relay: The key of the relay in the same pod; None without one.
          pod_gone: Done when the pod has gone, with which the attempts end.
          seconds: How long to try.
          on_refused: Awaited whenever the port has refused a connection; what it raises ends the attempts.

        Raises:
          ClusterError: The proxy does not take connections, or the cluster refuses them.
        """
        record = self._session_log.record
        if relay is not None:
            reload = clusters.reloader(lambda: self._session_log.record, self._client)
            outage = Outage(self._session_log.interrupted, self._session_log.reconnected, reload)
            port = replace(target, port=relay_port(target.port))
            self._relay = RelayClient(port, relay.secret, relay.keep, outage)
        forward = self._forward = await portforward.listen(
            target,
            path=None if record.tcp_port else Path(record.tunnel),
            port=record.tcp_port,
            on_failure=self._failed,
            traffic=self._session_log.traffic,
            open_stream=self._relay.open if self._relay is not None else None,
            local=GrpcConnection,
        )
        attempts = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=seconds)
        async for _ in attempts:
            try:
                await forward.prepare()
                return
            except ApiError:
                # The pod may have gone, which its watch is about to see.
                await asyncio.wait({pod_gone}, timeout=REASON_SECONDS)
                raise
            except (PortRefused, ConnectionLost, Unreachable) as error:
                # Retry: a pod without a readiness probe is ready before its program listens, and API servers restart.
                if pod_gone.done() or attempts.is_over:
                    raise
                if isinstance(error, PortRefused):
                    await on_refused()

    def cut(self) -> int | None:
        """Drop the connections to the relay; return how many there were, None without a relay."""
        return None if self._relay is None else self._relay.cut()

    async def close(self) -> None:
        """Close the tunnel, if it was opened."""
        if self._forward is not None:
            await self._forward.close()
        if self._relay is not None:
            await self._relay.close()

    def _failed(self, error: ClusterError) -> None:
        logger.warning("tunnel: %s", error)
        # One connection more was refused; those that are open, and so the proxy, work.
        if isinstance(error, TooManyStreams):
            self._session_log.report(EventKind.WARNING, f"{error} {error.hint}")
        else:
            self._on_loss(f"The tunnel failed: {error}")
