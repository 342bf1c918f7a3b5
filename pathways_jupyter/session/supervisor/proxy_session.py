"""The life cycle of one proxy: create the Job, wait for the pod, open the tunnel, watch it, remove it.

The supervisor decides when there is a proxy; this module implements the steps. Independent steps run concurrently: the
pod is watched while the Lease is created, and the tunnel opens while slices are being placed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import platform
import re
import time
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ApiError, CapacityError, ClusterError, PathwaysError, ServiceError
from pathways_jupyter.base.events import EventKind, Stage
from pathways_jupyter.base.sentences import advice, say
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, NETWORK_POLICIES, Object
from pathways_jupyter.kube.problems import ConnectionLost, Unreachable
from pathways_jupyter.service import discovery, leases, names, networkpolicy, proxy_job, queues
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.session import clusters, sweep
from pathways_jupyter.session.clusters import Embedded
from pathways_jupyter.session.registry import ALTS, INSECURE
from pathways_jupyter.session.supervisor import direct, proxy_end
from pathways_jupyter.session.supervisor.direct import Route
from pathways_jupyter.session.supervisor.lease_keeper import LeaseKeeper
from pathways_jupyter.session.supervisor.pod_watch import PodEnded, PodWatch, RelayRefused
from pathways_jupyter.session.supervisor.proxy_slices import ProxySlices
from pathways_jupyter.session.supervisor.session_log import SessionLog
from pathways_jupyter.tunnel import portforward
from pathways_jupyter.tunnel.attached_carrier import TooManyStreams
from pathways_jupyter.tunnel.grpc_connection import GrpcConnection
from pathways_jupyter.tunnel.outage import Outage
from pathways_jupyter.tunnel.portforward import Forward, PortRefused
from pathways_jupyter.tunnel.relay.container import RelaySpec
from pathways_jupyter.tunnel.relay.container import port_of as relay_port
from pathways_jupyter.tunnel.relay.wire import SECRET_BYTES
from pathways_jupyter.tunnel.relay_client import RelayClient

logger = logging.getLogger(__name__)

_REFUSALS = frozenset({400, 401, 403, 404, 422})
_DENIED_BY_POLICY = re.compile(r"denied (the )?request")
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0


class Proxy:
    """A proxy Job with its Lease, its pod, and the tunnel to it.

    Args:
      client: The cluster's client; the caller closes it.
      session_log: Receives all events.
      embedded: The cluster, where it is the embedded one.
      relay: Put a relay beside the proxy, unless JAX connects to it directly.
    """

    def __init__(
        self, client: Client, session_log: SessionLog, embedded: Embedded | None = None, *, relay: bool = False
    ) -> None:
        self._client = client
        self._relay = relay
        # Known to this process and, by its hash, to the relay; empty without one.
        self._secret = b""
        self._keep = 0.0
        self._relay_client: RelayClient | None = None
        self._embedded = embedded
        self._session_log = session_log
        self._config = session_log.config
        self._began = time.monotonic()
        self._slices = ProxySlices(client, session_log, self._stage)
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._job: Object = {}
        self._creation: asyncio.Task[None] | None = None
        self._lease: LeaseKeeper | None = None
        self._watch: PodWatch | None = None
        self._own_pod: Object | None = None
        self._route = Route()
        self._tunnel: Forward | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Create the proxy, and return when JAX can connect to it.

        Raises:
          CapacityError: The slices are taken, and `config.wait` is over.
          PathwaysError: Any other failure. Objects that were created stay until :meth:`remove`.
        """
        self._stage(Stage.DISCOVER, say("Looking for the service."))
        service = await discovery.find(
            self._client,
            self._session_log.record.namespace,
            self._config.service,
            instances=self._config.instances,
        )
        self._own_pod, self._route = await direct.plan(self._client, self._config, service.namespace)
        if self._relay and not self._route.is_direct:
            # On a direct path only the cluster's own network could be interrupted.
            self._secret, self._keep = os.urandom(SECRET_BYTES), self._config.keep
        self._slices.check(service)
        if queue := self._config.queue:
            await queues.check(self._client, service.namespace, queue, self._config.priority)
        await self._slices.choose(service)
        spec = self._spec(service)
        # The record before the Job: if this process dies in between, a sweep knows what to look for.
        about = {"service": service.address, "namespace": service.namespace, "job": spec.name}
        self._session_log.publish(**about, direct="", credentials=self._route.credentials or INSECURE)
        self._stage(Stage.CREATE, say("Creating proxy {proxy}.", proxy=spec.name), job=spec.name)
        # Shielded from cancellation: once the request is sent, the Job may exist. close() waits for this task, so that
        # remove() never lists Jobs while a create request is still in flight.
        self._creation = asyncio.create_task(self._create(proxy_job.job(spec), spec.port))
        await asyncio.shield(self._creation)
        assert self._lease is not None
        self._begin(self._lease.run())
        if self._config.queue:
            await self._admitted()
        pod = await self._ready()
        name = pod["metadata"]["name"]
        self._begin(self._slices.follow(name, service.namespace, keep=self._keep))
        if self._route.is_direct:
            opening = self._connect_directly(direct.address(pod, spec.port))
        else:
            opening = self._open_tunnel(portforward.Target(self._client, service.namespace, name, spec.port))
        assert self._watch is not None
        async with tasks.group() as group:
            group.create_task(opening)
            group.create_task(self._slices.wait(service, self._watch.lost, self._ended))

    @property
    def is_lost(self) -> bool:
        """Whether it is unusable; :meth:`lost` may still be looking for the reason."""
        return self._lost.done() or (self._watch is not None and self._watch.lost.done())

    async def lost(self) -> str:
        """Wait until the proxy is unusable, and return the reason."""
        assert self._watch is not None
        await asyncio.wait({self._lost, self._watch.lost}, return_when=asyncio.FIRST_COMPLETED)
        if not self._watch.lost.done():
            # A tunnel usually breaks because its pod is gone. Wait briefly for the pod's own, more precise reason.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    # Shielded: the timeout must not cancel the future of the watch.
                    await asyncio.shield(self._watch.lost)
        return await self._why_gone(self._watch.lost.result() if self._watch.lost.done() else self._lost.result())

    def cut(self) -> int | None:
        """Drop the tunnel's connections to the relay; return how many there were, None without a relay."""
        return None if self._relay_client is None else self._relay_client.cut()

    async def close(self) -> None:
        """Stop the tasks and close the tunnel; the objects in the cluster stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tunnel is not None:
            await self._tunnel.close()
        if self._relay_client is not None:
            await self._relay_client.close()
        if self._watch is not None:
            await self._watch.close()
        if self._creation is not None:
            await asyncio.gather(self._creation, return_exceptions=True)

    async def remove(self) -> None:
        """Close the proxy, and delete its objects in the cluster.

        Raises:
          SessionError: Something in the cluster could not be removed.
        """
        await self.close()
        record = self._session_log.record
        waiting = self._session_log.cleanup_waits
        await sweep.remove(self._client, record.namespace, record.id, waiting=waiting, embedded=self._embedded)

    def _spec(self, service: ServiceInfo) -> proxy_job.ProxySpec:
        config, record, pod = self._config, self._session_log.record, self._own_pod
        # An owner in another namespace does not exist for the cluster, which would delete the Job at once.
        owned = pod is not None and pod["metadata"]["namespace"] == service.namespace
        options = proxy_job.parse_options(config.proxy_options)
        if service.sidecar_image:
            options = replace(options, sidecar=True)
        return proxy_job.ProxySpec(
            session=record.id,
            service=service.name,
            address=service.address,
            image=config.proxy_image or proxy_job.image_for(service.server_image),
            instances=self._slices.instances,
            reclaimed=tuple(self._slices.reclaimed),
            namespace=service.namespace,
            user=record.user,
            gcs_bucket=clusters.bucket(config),
            max_lifetime=config.max_lifetime,
            kernel=record.kernel_id,
            notebook=record.notebook,
            host=platform.node(),
            insecure=self._route.credentials != ALTS,
            relay=RelaySpec(sha256(self._secret).hexdigest(), config.relay_image, self._keep) if self._secret else None,
            chips_queue=service.queue,
            queue=config.queue,
            priority=config.priority,
            owner=objects.owner(pod) if pod is not None and owned else {},
            options=replace(options, flags=(*options.flags, *config.proxy_xla_flags)),
            settings=config,
        )

    async def _create(self, manifest: Mapping[str, Any], port: int) -> None:
        try:
            job = await objects.create(self._client, JOBS, dict(manifest))
        except ApiError as error:
            if error.status in _REFUSALS:
                # Nothing was created. Forget the name, since an account that may not create Jobs may not list them
                # for a clean-up either.
                self._session_log.update(job="")
            if self._secret and _DENIED_BY_POLICY.search(str(error)):
                raise RelayRefused(f"The relay was denied: {error}") from error
            raise
        metadata, self._job = job["metadata"], job
        if self._secret and "restartPolicy" not in job["spec"]["template"]["spec"]["initContainers"][0]:
            # The API server drops the field that it does not know, and the proxy would wait for the relay's end.
            raise RelayRefused("The relay needs Kubernetes 1.29 or later.")
        self._watch = PodWatch(
            self._client,
            metadata["namespace"],
            f"{names.JOB_UID_LABEL}={metadata['uid']}",
            progress=lambda words: self._stage(Stage.START, words),
            relay=bool(self._secret),
            suspended=bool(job["spec"].get("suspend")),
        )
        await leases.create(
            self._client,
            job,
            seconds=self._config.lease_seconds,
            holder=self._session_log.record.id,
            keep=self._keep,
        )
        if self._route.is_direct and self._own_pod is not None:
            # Before the pod listens: starting it takes longer than this request.
            policy = networkpolicy.for_session(job, self._own_pod, port)
            await objects.create(self._client, NETWORK_POLICIES, policy)
        self._lease = LeaseKeeper(self._client, self._session_log, metadata["name"], self._lose, keep=self._keep)
        await self._lease.check()

    async def _admitted(self) -> None:
        """Wait until Kueue admits the Job, for `config.wait` if that is set; report what Kueue says meanwhile."""
        seen, seconds = "", self._config.wait or math.inf

        async def follow() -> None:
            nonlocal seen
            queued = queues.until_admitted(self._client, self._job, seconds=seconds)
            async with contextlib.aclosing(queued):
                async for seen in queued:
                    self._stage(Stage.QUEUE, seen)

        followed, lost = await tasks.first_done(follow(), self._lost)
        if lost is not None:
            raise ServiceError(f"The proxy's Job has gone from its queue. {lost.result()}", hint=advice("Try again."))
        assert followed is not None
        try:
            followed.result()
        except TimeoutError:
            raise CapacityError(
                f"Kueue has not admitted the proxy within {seconds:.0f} s. {seen}",
                hint=advice("Raise {wait}, or leave it out to wait without limit."),
            ) from None
        self._stage(Stage.QUEUE, say("Admitted by queue {queue}.", queue=self._config.queue), done=True)

    async def _ready(self) -> Object:
        """Return the pod once it is ready."""
        assert self._watch is not None
        try:
            async with asyncio.timeout(self._config.timeout):
                pod = await self._watch.ready
        except PodEnded as error:
            record = self._session_log.record
            raise await proxy_end.before_use(self._client, record, error.pod, str(error), error.hint) from error
        except TimeoutError as error:
            raise ServiceError(
                f"The proxy did not start within {self._config.timeout:.0f} s: {self._watch.last_seen}",
                hint=advice("Check that a node has room for it, or raise {timeout}."),
            ) from error
        name = pod["metadata"]["name"]
        self._session_log.update(pod=name)
        self._stage(Stage.START, say("Pod {pod} is ready.", pod=name), pod=name, done=True)
        return pod

    async def _ended(self) -> PathwaysError:
        """Return the error for a proxy that ended, or that can no longer be watched, before it could be used."""
        assert self._watch is not None
        if self._watch.error is not None:
            # The pod may have been ready when it was listed, and only watching it be forbidden.
            return self._watch.error
        record = self._session_log.record
        problem = f"The proxy ended before it could be used. {self._watch.lost.result()}"
        hint = advice("Older services end a proxy when all slices are taken: {slices} shows who holds them.")
        return await proxy_end.before_use(self._client, record, record.pod, problem, hint)

    async def _why_gone(self, reason: str) -> str:
        return await proxy_end.why_gone(self._client, self._session_log.record, reason, self._lease)

    # The data path.

    async def _connect_directly(self, where: str) -> None:
        """Return when the proxy takes connections at its own address."""
        assert self._watch is not None
        try:
            opening = direct.until_open(where, seconds=self._config.timeout)
            opened, _ = await tasks.first_done(opening, self._watch.lost)
            if opened is None or self._watch.lost.done():
                raise await self._ended()
            opened.result()
        except ConnectionRefusedError as error:
            raise ServiceError(
                f"The proxy does not listen: {error}.", hint=advice("See its log: {logs:proxy}.")
            ) from error
        self._session_log.update(direct=where)
        self._stage(Stage.TUNNEL, say("No tunnel: {path}.", path=self._session_log.record.data_path), done=True)

    async def _open_tunnel(self, target: portforward.Target) -> None:
        """Open the tunnel, and return when the proxy takes connections."""
        record = self._session_log.record
        path = None if record.tcp_port else Path(record.tunnel)
        if self._secret:
            outage = Outage(self._session_log.interrupted, self._session_log.restored, self._reload)
            relay = replace(target, port=relay_port(target.port))
            self._relay_client = RelayClient(relay, self._secret, self._keep, outage)
        self._tunnel = await portforward.listen(
            target,
            path=path,
            port=record.tcp_port,
            on_failure=self._tunnel_broke,
            traffic=self._session_log.traffic,
            open_stream=self._relay_client.open if self._relay_client is not None else None,
            local=GrpcConnection,
        )
        attempts = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=self._config.timeout)
        async for _ in attempts:
            try:
                await self._tunnel.prepare()
                break
            except (PortRefused, ConnectionLost, Unreachable) as error:
                # Retry: a pod without a readiness probe is ready before its program listens, and API servers restart.
                if self._watch is not None and self._watch.lost.done():
                    raise await self._ended() from error
                if attempts.is_over:
                    raise
        reason = self._route.reason
        opened = say("The tunnel is open. {reason}", reason=reason) if reason else say("The tunnel is open.")
        self._stage(Stage.TUNNEL, opened, done=True)

    async def _reload(self, error: ClusterError) -> None:
        """Load the cluster again if it may have moved, or may have new credentials."""
        try:
            cluster = await clusters.resolve(self._session_log.record)
        except PathwaysError as problem:
            logger.info("the cluster's address cannot be loaded again: %s", problem)
            return
        if cluster.server != self._client.cluster.server or isinstance(error, ApiError):
            logger.info("continuing at %s", cluster.server)
            self._client.move(cluster)

    def _tunnel_broke(self, error: ClusterError) -> None:
        logger.warning("tunnel: %s", error)
        if isinstance(error, TooManyStreams):
            self._session_log.report(EventKind.WARNING, f"{error} {error.hint}")
            return
        self._lose(say("The tunnel failed: {reason}", reason=str(error)))

    def _lose(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def _stage(self, stage: Stage, message: str, **data: Any) -> None:
        self._session_log.stage(stage, message, elapsed=round(time.monotonic() - self._began, 4), **data)
