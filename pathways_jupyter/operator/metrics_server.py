"""Serve Prometheus metrics of all services and sessions that the operator can see.

A scrape costs the API server nothing, because the cluster is followed meanwhile. While that fails, ``pathways_up`` is 0
and all other metrics about the cluster are missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pathways_jupyter.base.errors import ClusterError, PathwaysError
from pathways_jupyter.kube.informer import Informers
from pathways_jupyter.operator.cluster_state import ClusterState
from pathways_jupyter.operator.job_controller import Reconciles
from pathways_jupyter.service import metrics, unreadable
from pathways_jupyter.service.session_figures import SessionFigures

if TYPE_CHECKING:
    from aiohttp import web
    from prometheus_client.core import Metric

_ODD = "Leases of sessions of which something cannot be read; `pathways-jupyter doctor` names them."
FRESH_SECONDS = 5.0
"""Seconds for which one text serves all scrapes."""


class ClusterMetrics:
    """The metrics of one namespace, or of all.

    Args:
      namespace: Empty for all.
      reconciles: Those of this operator.
      say: Called with the reason whenever the cluster cannot be read.
    """

    def __init__(
        self, informers: Informers, *, namespace: str = "", reconciles: Reconciles, say: Callable[[str], None]
    ) -> None:
        self._client = informers.client
        self._reconciles = reconciles
        self.state = ClusterState(informers, namespace)
        self._say = say
        self._lock = asyncio.Lock()
        self._text = b""
        self._read_at = float("-inf")

    async def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        from prometheus_client import generate_latest

        # Under the lock, so that scrapes at the same time share one look.
        async with self._lock:
            if time.monotonic() - self._read_at > FRESH_SECONDS:
                found = await self._read()
                # A collector of one moment.
                self._text = generate_latest(SimpleNamespace(collect=lambda: found))
                self._read_at = time.monotonic()
            return self._text

    async def _read(self) -> list[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

        requests = CounterMetricFamily(
            "pathways_operator_api_requests", "This operator's requests to the API server.", labels=["method", "status"]
        )
        for (method, code), number in sorted(self._client.answered.items()):
            requests.add_metric([method, str(code)], number)
        done = self._reconciles
        own = [
            requests,
            SummaryMetricFamily(
                "pathways_operator_reconcile_seconds",
                "Reconciles of PathwaysJobs by this operator.",
                count_value=done.count,
                sum_value=done.seconds,
            ),
        ]
        # Old figures of a cluster that cannot be read would look like new ones.
        up = "Whether the cluster could be read; if not, those about it are missing."
        try:
            await self.state.check()
        except PathwaysError as error:
            self._say(f"metrics: {error}")
            return [*own, GaugeMetricFamily("pathways_up", up, value=0)]
        now, found = self._client.now(), list(self.state.leases.values())
        figures = [each for each in (SessionFigures.of_lease(lease, now) for lease in found) if each is not None]
        return [
            *own,
            GaugeMetricFamily("pathways_up", up, value=1),
            *metrics.of_services((self._client.cluster.name, each) for each in self.state.services()),
            GaugeMetricFamily("pathways_odd_leases", _ODD, value=unreadable.number_of(found)),
            *metrics.of_sessions(figures),
        ]


@contextlib.asynccontextmanager
async def serving(
    informers: Informers,
    port: int,
    *,
    namespace: str = "",
    is_ready: Callable[[], bool],
    reconciles: Reconciles,
    say: Callable[[str], None],
) -> AsyncIterator[str]:
    """Serve ``/metrics``, ``/healthz`` and ``/readyz`` on `port` inside the block; yields the first one's address.

    It is alive if it answers. Not being ready restarts nothing: the API server that it cannot reach is no fault of its.
    In a pod it listens on all addresses, because Prometheus comes from another pod; elsewhere on the loopback one.

    Raises:
      ClusterError: The port is in use.
    """
    from aiohttp import web
    from prometheus_client import CONTENT_TYPE_LATEST

    collected = ClusterMetrics(informers, namespace=namespace, reconciles=reconciles, say=say)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=await collected.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def alive(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(request: web.Request) -> web.Response:
        return web.Response(text="ok") if is_ready() else web.Response(text="the API server is silent", status=503)

    application = web.Application()
    application.add_routes([web.get("/metrics", answer), web.get("/healthz", alive), web.get("/readyz", ready)])
    runner = web.AppRunner(application, access_log=None)
    # Cleaned up also when the port is in use.
    await runner.setup()
    following = asyncio.create_task(collected.state.run())
    host = "" if os.environ.get("KUBERNETES_SERVICE_HOST") else "127.0.0.1"
    try:
        try:
            site = web.TCPSite(runner, host or None, port)
            await site.start()
        except OSError as error:
            raise ClusterError(
                f"Metrics cannot be served on port {port}: {error.strerror or error}.", hint="Choose another port."
            ) from error
        yield f"http://{host or '0.0.0.0'}:{port}/metrics"
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await runner.cleanup()
