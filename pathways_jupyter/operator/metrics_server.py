"""Serve Prometheus metrics of all services and sessions that the operator can see.

A scrape costs the API server nothing, because the cluster is followed meanwhile. While that fails, ``pathways_up`` is 0
and all other metrics about the cluster are missing. Metrics are made anew for every scrape, and a value whose source is
out of date is left out, so that no series shows what was true once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ClusterError, PathwaysError
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.kube.objects import JOBS, JOBSETS, LEASES, PODS, Object, Resource
from pathways_jupyter.kube.watch import Change, ChangeType
from pathways_jupyter.operator.job_controller import Reconciles
from pathways_jupyter.service import discovery, leases, names, unreadable
from pathways_jupyter.service.derivation import derive
from pathways_jupyter.service.model import Service
from pathways_jupyter.service.namespacestate import NamespaceState
from pathways_jupyter.service.podstate import State
from pathways_jupyter.service.session_figures import SessionFigures

if TYPE_CHECKING:
    from aiohttp import web
    from prometheus_client.core import Metric

_ODD = "Leases of sessions of which something cannot be read; `pathways-jupyter doctor` names them."
FRESH_SECONDS = 5.0
"""Seconds for which one text serves all scrapes."""
_SERVICE = ("cluster", "namespace", "service", "instance_type", "queue")
_SESSION = ("session", "user", "namespace", "service", "queue")
_COUNTERS: Mapping[str, tuple[str, str]] = {
    "waited": ("slice_wait_seconds", "Seconds waited for slices."),
    "reconnects": ("reconnects", "Proxies that were replaced."),
    "losses": ("slice_losses", "Slices that went down."),
    "recoveries": ("slice_recoveries", "Slices that came back."),
    "interruptions": ("interruptions", "Interruptions of the network that the relay outlived."),
}
"""Name and meaning of the metric of each figure."""

_KINDS = {JOBSETS: "", PODS: "", JOBS: "", LEASES: names.SESSIONS}
"""Kinds that are followed, with the labels that their objects must have. Other tools' proxies have none of ours."""
_SYNC_SECONDS = 10.0
"""Longest wait of a reader for the first lists."""


class ClusterState:
    """Services and sessions as :meth:`run` keeps them current.

    Args:
      namespace: Empty for all.

    Attributes:
      leases: Those of sessions, by namespace and name.
    """

    def __init__(self, informer: Informer, namespace: str) -> None:
        self._client = informer.client
        self._informer = informer
        self._namespace = namespace
        self._known: dict[str, NamespaceState] = {}
        self.leases: dict[tuple[str, str], Object] = {}
        self._errors: dict[Resource, PathwaysError] = {}
        # Kinds of which everything is known, or an error.
        self._settled: dict[Resource, asyncio.Event] = {each: asyncio.Event() for each in _KINDS}

    async def run(self) -> None:
        """Follow all kinds until cancelled."""
        try:
            async with tasks.group() as group:
                for resource, labels in _KINDS.items():
                    take = functools.partial(self._take, resource)
                    group.create_task(self._informer.follow(resource, take, namespace=self._namespace, labels=labels))
        finally:
            # However it ends: from now on, what is known is outdated.
            for resource in _KINDS:
                self._take(resource, Change(ChangeType.LOST, error=ClusterError("The cluster is no longer followed.")))

    async def check(self) -> None:
        """Wait until what is known is complete.

        Raises:
          PathwaysError: It is not.
        """
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                for settled in self._settled.values():
                    await settled.wait()
        except TimeoutError as error:
            raise ClusterError("The cluster's objects are still being listed.") from error
        if self._errors:
            raise next(iter(self._errors.values())).with_traceback(None)

    def services(self) -> list[Service]:
        """Return the services as they are now, without what only logs say: the operator may not read these."""
        silent = leases.reclaimable(self.leases.values(), self._client.now())
        return [
            derive(each, pods=state.pods, jobs=list(state.proxies()), reclaimable=silent)
            for state in self._known.values()
            for each in discovery.of_jobsets(list(state.objects[JOBSETS].values()))
        ]

    def _take(self, resource: Resource, change: Change) -> None:
        kind, item = change.type, change.object
        if kind is ChangeType.SYNCED:
            self._errors.pop(resource, None)
            self._settled[resource].set()
        elif change.error is not None:
            self._errors[resource] = change.error
            self._settled[resource].set()
        elif resource is LEASES and kind is ChangeType.DELETED:
            self.leases.pop(leases.lease_key(item), None)
        elif resource is LEASES:
            self.leases[leases.lease_key(item)] = item
        else:
            state = self._known.setdefault(str(item["metadata"].get("namespace") or ""), NamespaceState())
            (state.drop if kind is ChangeType.DELETED else state.put)(resource, item)


class ClusterMetrics:
    """The metrics of one namespace, or of all.

    Args:
      namespace: Empty for all.
      reconciles: Those of this operator.
      say: Called with the reason whenever the cluster cannot be read.
    """

    def __init__(
        self, informer: Informer, *, namespace: str = "", reconciles: Reconciles, say: Callable[[str], None]
    ) -> None:
        self._client = informer.client
        self._reconciles = reconciles
        self.state = ClusterState(informer, namespace)
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
                metrics = await self._read()
                # A collector of one moment.
                self._text = generate_latest(SimpleNamespace(collect=lambda: metrics))
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
        now, leases_now = self._client.now(), list(self.state.leases.values())
        figures = [each for each in (SessionFigures.of_lease(lease, now) for lease in leases_now) if each is not None]
        return [
            *own,
            GaugeMetricFamily("pathways_up", up, value=1),
            *of_services((self._client.cluster.name, each) for each in self.state.services()),
            GaugeMetricFamily("pathways_odd_leases", _ODD, value=unreadable.number_of(leases_now)),
            *of_sessions(figures),
        ]


@contextlib.asynccontextmanager
async def serving(
    informer: Informer,
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

    collected = ClusterMetrics(informer, namespace=namespace, reconciles=reconciles, say=say)

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
        await tasks.stop(following)
        await runner.cleanup()


def of_services(services: Iterable[tuple[str, Service]]) -> Iterator[Metric]:
    """Yield the metrics of services.

    Args:
      services: The name of the cluster, and the model of a service; a service that comes twice counts once.
    """
    from prometheus_client.core import GaugeMetricFamily

    slices = GaugeMetricFamily("pathways_slices", "Slices of a service by state.", labels=[*_SERVICE, "state"])
    free = GaugeMetricFamily("pathways_slices_free", "Slices that are ready and not held.", labels=_SERVICE)
    silent = GaugeMetricFamily(
        "pathways_slices_reclaimable", "Slices of silent sessions, kept until someone needs them.", labels=_SERVICE
    )
    for (cluster, namespace, name), each in {(at, each.namespace, each.name): each for at, each in services}.items():
        labels = (cluster, namespace, name, each.instance_type, each.queue)
        counted = Counter(one.state for one in each.slices)
        for state in State:
            slices.add_metric([*labels, state], counted[state])
        free.add_metric(labels, each.free)
        silent.add_metric(labels, each.reclaimable)
    yield from (slices, free, silent)


def of_sessions(sessions: Iterable[SessionFigures]) -> Iterator[Metric]:
    """Yield the metrics of sessions."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    # Prometheus refuses a series that comes twice, and a Lease may carry the labels of another session.
    listed = list({(each.session, each.user, each.namespace, each.service): each for each in sessions}.values())
    states = GaugeMetricFamily("pathways_sessions", "Sessions by state.", labels=["state"])
    for state, number in sorted(Counter(each.state for each in listed).items()):
        states.add_metric([state], number)
    chips = GaugeMetricFamily("pathways_session_chips", "Chips that the session holds.", labels=_SESSION)
    idle = GaugeMetricFamily("pathways_session_idle_seconds", "Since it sent anything to its proxy.", labels=_SESSION)
    counters = {
        name: CounterMetricFamily(f"pathways_session_{metric}", help_text, labels=_SESSION)
        for name, (metric, help_text) in _COUNTERS.items()
    }
    carried = CounterMetricFamily(
        "pathways_session_tunnel_bytes", "Bytes that the tunnel carried.", labels=[*_SESSION, "relay", "direction"]
    )
    for each in listed:
        labels = (each.session, each.user, each.namespace, each.service, each.queue)
        chips.add_metric(labels, each.chips if each.holds else 0)
        if each.idle is not None:
            idle.add_metric(labels, each.idle)
        for name, counter in counters.items():
            counter.add_metric(labels, getattr(each, name))
        if each.sent is not None and each.received is not None:
            relay = "yes" if each.relay else "no"
            carried.add_metric([*labels, relay, "sent"], each.sent)
            carried.add_metric([*labels, relay, "received"], each.received)
    yield from (states, chips, idle, *counters.values(), carried)
