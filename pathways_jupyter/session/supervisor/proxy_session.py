"""The life cycle of one proxy: create the Job, wait for the pod, open the tunnel, watch it, remove it.

The supervisor decides when there is a proxy; this module implements the steps. Independent steps run concurrently: the
pod is watched while the Lease is created, and the tunnel opens while slices are being placed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import (
    ApiError,
    ClusterError,
    ConnectionLost,
    PathwaysError,
    ServiceError,
    Unreachable,
)
from pathways_jupyter.base.events import EventKind, Stage
from pathways_jupyter.base.sentences import advice, say
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, NETWORK_POLICIES, Object
from pathways_jupyter.service import discovery, leases, names, networkpolicy, proxy_job, queues
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.session import clusters, sweep
from pathways_jupyter.session.clusters import Embedded
from pathways_jupyter.session.registry import ALTS, INSECURE
from pathways_jupyter.session.supervisor import admission, direct, proxy_end, proxy_spec
from pathways_jupyter.session.supervisor.direct import DataPath
from pathways_jupyter.session.supervisor.lease_keeper import LeaseKeeper
from pathways_jupyter.session.supervisor.node_notices import NodeNotices
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

Made = TypeVar("Made")

_REFUSALS = frozenset({400, 401, 403, 404, 422})
_DENIED_BY_POLICY = re.compile(r"denied (the )?request")
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
_REASON_SECONDS = 1.0
"""Longest wait for the reason that the watch of a pod gives, once something else has shown that it is gone."""
_PREVIOUS_SECONDS = 45.0
"""Longest wait for the cluster to remove what it has of the previous proxy: a pod may take 30 s to end. A Job without a
Lease counts as abandoned soon after."""


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
        self._job: Object | None = None
        self._creations: list[asyncio.Task[Any]] = []
        self._lease: LeaseKeeper | None = None
        self._watch: PodWatch | None = None
        self._own_pod: Object | None = None
        self._route = DataPath()
        self._tunnel: Forward | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Create the proxy, and return when JAX can connect to it.

        Raises:
          CapacityError: The slices are taken, and `config.wait` is over.
          PathwaysError: Any other failure. Objects that were created stay until :meth:`remove`.
        """
        config, record = self._config, self._session_log.record
        self._stage(Stage.DISCOVER, say("Looking for the service."))
        namespace = names.service_of(config.service)[1] or record.namespace
        # Before there is a pod, so that its first change is seen without asking for it.
        watch = self._watch = PodWatch(
            self._client,
            namespace,
            f"{names.SESSION_LABEL}={record.id}",
            progress=lambda words: self._stage(Stage.START, words),
        )
        # None of these needs the answer to another one, and the cluster may be far away.
        async with tasks.group() as group:
            looked = group.create_task(self._slices.look(namespace))
            planned = group.create_task(direct.plan(self._client, config, namespace))
            if config.queue:
                group.create_task(queues.check(self._client, namespace, config.queue, config.priority))
        service, picture = looked.result()
        self._session_log.limit_idleness(service.suspend_after)
        self._own_pod, self._route = planned.result()
        if self._relay and not self._route.is_direct:
            # On a direct path only the cluster's own network could be interrupted.
            self._secret, self._keep = os.urandom(SECRET_BYTES), config.keep
        discovery.check(service, config.instances)
        await self._slices.choose(service, picture)
        relay = RelaySpec(sha256(self._secret).hexdigest(), config.relay_image, self._keep) if self._secret else None
        insecure = self._route.credentials != ALTS
        spec = proxy_spec.of_session(
            record, config, service, self._slices, pod=self._own_pod, insecure=insecure, relay=relay
        )
        # The record before the Job: if this process dies in between, a sweep knows what to look for.
        about = {"service": service.address, "namespace": service.namespace, "job": spec.name}
        self._session_log.publish(**about, direct="", credentials=self._route.credentials or INSECURE)
        self._stage(Stage.CREATE, say("Creating proxy {proxy}.", proxy=spec.name), job=spec.name)
        job = await self._creating(lambda: self._create(proxy_job.job(spec)))
        watch.expect(job, relay=bool(self._secret))
        async with tasks.group() as group:
            group.create_task(self._protect(job, spec.port))
            group.create_task(self._reach(job, service, spec.port))
        if self._session_log.record.suspend_after:
            self._begin(NodeNotices(self._client, self._session_log, service).follow())

    @property
    def _pod_watch(self) -> PodWatch:
        """The watch of its pod; only once :meth:`start` has made it."""
        assert self._watch is not None
        return self._watch

    @property
    def job(self) -> Object | None:
        """Its Job, which owns all that it has made in the cluster; None until the cluster has answered."""
        return self._job

    @property
    def is_lost(self) -> bool:
        """Return whether it is unusable; :meth:`lost` may still be looking for the reason."""
        return self._lost.done() or (self._watch is not None and self._watch.lost.done())

    async def lost(self) -> str:
        """Wait until the proxy is unusable, and return the reason."""
        await asyncio.wait({self._lost, self._pod_watch.lost}, return_when=asyncio.FIRST_COMPLETED)
        if not self._pod_watch.lost.done():
            # A tunnel usually breaks because its pod is gone. Wait briefly for the pod's own, more precise reason.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REASON_SECONDS):
                    # Shielded: the timeout must not cancel the future of the watch.
                    await asyncio.shield(self._pod_watch.lost)
        gone = self._pod_watch.lost if self._pod_watch.lost.done() else self._lost
        return await self._why_gone(gone.result())

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
        await asyncio.gather(*self._creations, return_exceptions=True)

    async def remove(self) -> None:
        """Close the proxy, and delete its objects in the cluster.

        Raises:
          SessionError: Something in the cluster could not be removed.
        """
        await self.close()
        record = self._session_log.record
        waiting = self._session_log.cleanup_waits
        await sweep.remove(
            self._client, record.namespace, record.id, job=self.job, waiting=waiting, embedded=self._embedded
        )

    async def _creating(self, request: Callable[[], Coroutine[Any, Any, Made]]) -> Made:
        """Make a request that creates an object; again while the previous proxy's, of the same name, is there.

        The cluster removes what a deleted Job owns in its own time, and the Job itself after its pod if that was
        demanded. Each request is shielded from cancellation, because the object may exist once it is sent:
        :meth:`close` waits for it, so that :meth:`remove` never lists objects while such a request is in flight.
        """
        attempts = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, seconds=_PREVIOUS_SECONDS)
        while True:
            task = asyncio.create_task(request())
            self._creations.append(task)
            try:
                return await asyncio.shield(task)
            except ApiError as error:
                if error.status != 409 or attempts.is_over:
                    raise
            await attempts.wait()

    async def _create(self, manifest: Mapping[str, Any]) -> Object:
        """Create the Job."""
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
        self._job = job
        if self._secret and "restartPolicy" not in job["spec"]["template"]["spec"]["initContainers"][0]:
            # The API server drops the field that it does not know, and the proxy would wait for the relay's end.
            raise RelayRefused("The relay needs Kubernetes 1.29 or later.")
        return job

    async def _protect(self, job: Object, port: int) -> None:
        """Create what protects the Job while its pod starts: its Lease, and on a direct path its NetworkPolicy."""
        async with tasks.group() as group:
            leasing = group.create_task(self._creating(lambda: self._lease_of(job)))
            if self._route.is_direct and self._own_pod is not None:
                policy = networkpolicy.for_session(job, self._own_pod, port)
                group.create_task(self._creating(lambda: objects.create(self._client, NETWORK_POLICIES, policy)))
        lease = self._lease = leasing.result()
        self._begin(lease.run())
        await lease.check()

    async def _lease_of(self, job: Object) -> LeaseKeeper:
        record = self._session_log.record
        seconds = self._config.lease_seconds
        await leases.create(self._client, job, seconds=seconds, holder=record.id, keep=self._keep)
        return LeaseKeeper(self._client, self._session_log, job["metadata"]["name"], self._lose, keep=self._keep)

    async def _reach(self, job: Object, service: ServiceInfo, port: int) -> None:
        """Wait for the pod and its slices, and open the way to it."""
        if self._config.queue:
            await admission.wait(self._client, job, self._config, self._lost, self._stage)
        # Without its Lease the proxy is not kept, however long it would still wait for slices.
        usable, lost = await tasks.first_done(self._usable(service, port), self._lost)
        if usable is None:
            assert lost is not None
            raise ServiceError(f"The proxy did not start. {lost.result()}", hint=advice("Try again."))
        usable.result()

    async def _usable(self, service: ServiceInfo, port: int) -> None:
        pod = await self._ready()
        name = pod["metadata"]["name"]
        self._begin(self._slices.follow(pod, keep=self._keep))
        if self._route.is_direct:
            opening = self._connect_directly(direct.address(pod, port))
        else:
            opening = self._open_tunnel(portforward.PodPort(self._client, service.namespace, name, port))
        async with tasks.group() as group:
            group.create_task(opening)
            group.create_task(self._slices.wait(service, self._pod_watch.lost, self._ended))

    async def _ready(self) -> Object:
        """Return the pod once it is ready."""
        try:
            async with asyncio.timeout(self._config.timeout):
                pod = await self._pod_watch.ready
        except PodEnded as error:
            record = self._session_log.record
            raise await proxy_end.before_use(self._client, record, error.pod, str(error), error.hint) from error
        except TimeoutError as error:
            raise ServiceError(
                f"The proxy did not start within {self._config.timeout:.0f} s: {self._pod_watch.last_seen}",
                hint=advice("Check that a node has room for it, or raise {timeout}."),
            ) from error
        name = pod["metadata"]["name"]
        self._session_log.update(pod=name)
        self._stage(Stage.START, say("Pod {pod} is ready.", pod=name), pod=name, done=True)
        return pod

    async def _ended(self) -> PathwaysError:
        """Return the error for a proxy that ended, or that can no longer be watched, before it could be used."""
        if self._pod_watch.error is not None:
            # The pod may have been ready when it was listed, and only watching it be forbidden.
            return self._pod_watch.error
        record = self._session_log.record
        problem = f"The proxy ended before it could be used. {self._pod_watch.lost.result()}"
        hint = advice("Try again; {doctor} looks for the cause.")
        if not self._pod_watch.was_deleted:
            hint = advice("Older services end a proxy when all slices are taken: {slices} shows who holds them.")
        return await proxy_end.before_use(self._client, record, record.pod, problem, hint)

    async def _why_gone(self, reason: str) -> str:
        return await proxy_end.why_gone(self._client, self._session_log.record, reason, self._lease)

    # The data path.

    async def _connect_directly(self, where: str) -> None:
        """Return when the proxy takes connections at its own address."""
        try:
            opening = direct.until_open(where, seconds=self._config.timeout)
            opened, _ = await tasks.first_done(opening, self._pod_watch.lost)
            if opened is None or self._pod_watch.lost.done():
                raise await self._ended()
            opened.result()
        except ConnectionRefusedError as error:
            raise ServiceError(
                f"The proxy does not listen: {error}.", hint=advice("See its log: {logs:proxy}.")
            ) from error
        self._session_log.update(direct=where)
        self._stage(Stage.TUNNEL, say("No tunnel: {path}.", path=self._session_log.record.data_path), done=True)

    async def _open_tunnel(self, target: portforward.PodPort) -> None:
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
            except (PortRefused, ConnectionLost, Unreachable, ApiError) as error:
                is_final = isinstance(error, ApiError)
                if is_final:
                    # The pod may have gone, which its watch is about to see.
                    await asyncio.wait({self._pod_watch.lost}, timeout=_REASON_SECONDS)
                if self._pod_watch.lost.done():
                    raise await self._ended() from error
                # Retry: a pod without a readiness probe is ready before its program listens, and API servers restart.
                if is_final or attempts.is_over:
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
