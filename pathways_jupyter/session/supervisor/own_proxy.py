"""The proxy that a session creates: a Job with a Lease, removed with the session."""

from __future__ import annotations

import asyncio
import contextlib
import math
import platform
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ApiError, CapacityError, ServiceError
from pathways_jupyter.base.events import Stage
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, NETWORK_POLICIES, Object
from pathways_jupyter.service import discovery, leases, names, networkpolicy, proxy_job, queues
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.session import clusters
from pathways_jupyter.session.registry import ALTS, INSECURE
from pathways_jupyter.session.supervisor import direct, proxy_end
from pathways_jupyter.session.supervisor.direct import DataPath
from pathways_jupyter.session.supervisor.lease_keeper import LeaseKeeper
from pathways_jupyter.session.supervisor.pod_watch import RelayRefused
from pathways_jupyter.session.supervisor.proxy import Proxy
from pathways_jupyter.session.supervisor.proxy_tunnel import RelayKey
from pathways_jupyter.session.supervisor.session_log import SessionLog

Made = TypeVar("Made")

_REFUSALS = frozenset({400, 401, 403, 404, 422})
_DENIED_BY_POLICY = re.compile(r"denied (the )?request")
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0
_PREVIOUS_SECONDS = 45.0
"""Longest wait for the cluster to remove what it has of the previous proxy: a pod may take 30 s to end. A Job without a
Lease counts as abandoned soon after."""


@dataclass(frozen=True)
class _Plan:
    """Choices that are made before the Job is created.

    Attributes:
      own_pod: That of the notebook, if it is in the cluster.
      relay: The key of the relay beside the proxy; None without one.
    """

    service: ServiceInfo
    path: DataPath
    own_pod: Object | None
    relay: RelayKey | None

    @property
    def keep(self) -> float:
        """Seconds for which the proxy is kept without a connection; 0 without a relay."""
        return self.relay.keep if self.relay is not None else 0.0


class OwnProxy(Proxy):
    """A proxy Job with its Lease, its pod, and the tunnel to it.

    Args:
      client: The cluster's client; the caller closes it.
      session_log: Receives all events.
      relay: Put a relay beside the proxy, unless JAX connects to it directly.
    """

    def __init__(self, client: Client, session_log: SessionLog, *, relay: bool = False) -> None:
        super().__init__(client, session_log)
        self._wants_relay = relay
        self._creations: list[asyncio.Task[Any]] = []
        self._lease: LeaseKeeper | None = None

    async def start(self) -> None:
        """Create the proxy, and return when JAX can connect to it.

        Raises:
          CapacityError: The slices are taken, and `config.wait` is over.
          PathwaysError: Any other failure. Objects that were created stay.
        """
        record = self._session_log.record
        self._stage(Stage.DISCOVER, "Looking for the service.")
        namespace = names.service_of(self._config.service)[1] or record.namespace
        # Before there is a pod, so that its first change is seen without asking for it.
        self._watch.begin(self._client, namespace, f"{names.SESSION_LABEL}={record.id}")
        plan = await self._plan(namespace)
        spec = self._spec(plan)
        # The record before the Job: if this process dies in between, a sweep knows what to look for.
        self._session_log.publish(
            service=plan.service.address,
            namespace=plan.service.namespace,
            job=spec.name,
            direct="",
            credentials=plan.path.credentials or INSECURE,
        )
        self._stage(Stage.CREATE, f"Creating proxy {spec.name}.", job=spec.name)
        job = await self._creating(lambda: self._create(spec))
        self._watch.expect(job, relay=plan.relay is not None)
        async with tasks.group() as group:
            group.create_task(self._protect(job, plan, spec.port))
            group.create_task(self._until_reached(job, plan, spec.port))

    async def close(self) -> None:
        """Close the proxy, and wait for the requests that may still create something."""
        await super().close()
        if self._creations:
            # They go on where this is cancelled, because a reconnect does not wait for long; it closes the proxy again.
            await asyncio.wait(self._creations)

    async def _why_gone(self, reason: str) -> str:
        return await proxy_end.why_gone(self._client, self._session_log.record, reason, self._lease)

    # Before there is a Job.

    async def _plan(self, namespace: str) -> _Plan:
        """Find the service, choose slices and the data path."""
        config = self._config
        # None of these needs the answer to another one, and the cluster may be far away.
        async with tasks.group() as group:
            looked = group.create_task(self._slices.look(namespace))
            planned = group.create_task(direct.plan(self._client, config, namespace))
            if config.queue:
                group.create_task(queues.check(self._client, namespace, config.queue, config.priority))
        (service, model), (own_pod, path) = looked.result(), planned.result()
        self._session_log.limit_idleness(service.suspend_after)
        discovery.check(service, config.instances)
        await self._slices.choose(service, model)
        # On a direct path only the cluster's own network could be interrupted.
        relay = RelayKey.new(config.keep) if self._wants_relay and not path.is_direct else None
        return _Plan(service, path, own_pod, relay)

    def _spec(self, plan: _Plan) -> proxy_job.ProxySpec:
        config, record, service, pod = self._config, self._session_log.record, plan.service, plan.own_pod
        # An owner in another namespace does not exist for the cluster, which would delete the Job at once.
        owned = pod is not None and pod["metadata"]["namespace"] == service.namespace
        options = proxy_job.ProxyOptions.from_list(config.proxy_options)
        if service.sidecar_image:
            options = replace(options, sidecar=True)
        return proxy_job.ProxySpec(
            session=record.id,
            service=service.name,
            address=service.address,
            image=config.proxy_image or proxy_job.image_for(service.image),
            instances=self._slices.instances,
            namespace=service.namespace,
            user=record.user,
            gcs_bucket=clusters.bucket(config),
            max_lifetime=config.max_lifetime,
            kernel=record.kernel_id,
            notebook=record.notebook,
            host=platform.node(),
            insecure=plan.path.credentials != ALTS,
            relay=plan.relay.spec(config.relay_image) if plan.relay is not None else None,
            chips_queue=service.queue,
            queue=config.queue,
            priority=config.priority,
            owner=objects.owner(pod) if pod is not None and owned else {},
            options=options,
            settings=config,
        )

    # What it has in the cluster.

    async def _creating(self, request: Callable[[], Coroutine[Any, Any, Made]]) -> Made:
        """Make a request that creates an object; again while the previous proxy's, of the same name, is there.

        The cluster removes what a deleted Job owns in its own time, and the Job itself after its pod if that was
        demanded. Each request is shielded from cancellation, because the object may exist once it is sent:
        :meth:`close` waits for it, so that a removal never lists objects while such a request is in flight.
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

    async def _create(self, spec: proxy_job.ProxySpec) -> Object:
        """Create the Job."""
        try:
            job = await objects.create(self._client, JOBS, proxy_job.job(spec))
        except ApiError as error:
            if error.status in _REFUSALS:
                # Nothing was created. Forget the name, since an account that may not create Jobs may not list them
                # for a clean-up either.
                self._session_log.update(job="")
            if spec.relay is not None and _DENIED_BY_POLICY.search(str(error)):
                raise RelayRefused(f"The relay was denied: {error}") from error
            raise
        # Here, and not where this request is awaited, which may be cancelled before the answer.
        self.job = job
        if spec.relay is not None and "restartPolicy" not in job["spec"]["template"]["spec"]["initContainers"][0]:
            # The API server drops the field that it does not know, and the proxy would wait for the relay's end.
            raise RelayRefused("The relay needs Kubernetes 1.29 or later.")
        return job

    async def _protect(self, job: Object, plan: _Plan, port: int) -> None:
        """Create what protects the Job while its pod starts: its Lease, and on a direct path its NetworkPolicy."""
        async with tasks.group() as group:
            # Both at once: each needs only the Job, which owns them.
            leasing = group.create_task(self._creating(lambda: self._lease_of(job, plan.keep)))
            if plan.path.is_direct and plan.own_pod is not None:
                policy = networkpolicy.for_session(job, plan.own_pod, port)
                group.create_task(self._creating(lambda: objects.create(self._client, NETWORK_POLICIES, policy)))
        # Renewed from now on, since the pod may take longer to start than the Lease lasts.
        lease = self._lease = leasing.result()
        self._begin(lease.run())
        await lease.check()

    async def _lease_of(self, job: Object, keep: float) -> LeaseKeeper:
        record = self._session_log.record
        seconds = self._config.lease_seconds
        reclaimed = self._slices.reclaimed
        await leases.create(self._client, job, seconds=seconds, holder=record.id, keep=keep, reclaimed=reclaimed)
        return LeaseKeeper(self._client, self._session_log, job["metadata"]["name"], self._lose, keep=keep)

    # Until JAX can connect.

    async def _until_reached(self, job: Object, plan: _Plan, port: int) -> None:
        """Wait for the pod and its slices, and open the path to it."""
        if self._config.queue:
            await self._admission(job)
        # Without its Lease the proxy is not kept, however long it would still wait for slices.
        usable, lost = await tasks.first_done(self._until_usable(plan, port), self._lost)
        if usable is None:
            assert lost is not None
            raise ServiceError(f"The proxy did not start. {lost.result()}", hint=advice("Try again."))
        usable.result()

    async def _admission(self, job: Object) -> None:
        """Wait until Kueue admits `job`, for `config.wait` if that is set; report what Kueue says meanwhile.

        Raises:
          CapacityError: The wait is over.
          ServiceError: The Job is gone.
        """
        seen, seconds = "", self._config.wait or math.inf

        async def follow() -> None:
            nonlocal seen
            queued = queues.until_admitted(self._client, job, seconds=seconds)
            async with contextlib.aclosing(queued):
                async for seen in queued:
                    self._stage(Stage.QUEUE, seen)

        followed, gone = await tasks.first_done(follow(), self._lost)
        if gone is not None:
            raise ServiceError(f"The proxy's Job has gone from its queue. {gone.result()}", hint=advice("Try again."))
        assert followed is not None
        try:
            followed.result()
        except TimeoutError:
            raise CapacityError(
                f"Kueue has not admitted the proxy within {seconds:.0f} s. {seen}",
                hint=advice("Raise {wait}, or leave it out to wait without limit."),
            ) from None
        self._stage(Stage.QUEUE, f"Admitted by queue {self._config.queue}.", done=True)

    async def _until_usable(self, plan: _Plan, port: int) -> None:
        """Wait for the pod, then for its slices, and meanwhile open the path to it."""
        pod = await self._ready()
        # Before the path is open: the proxy gets its slices meanwhile, and its log says so.
        self._begin(self._slices.follow(pod, keep=plan.keep))
        if plan.path.is_direct:
            opening = self._connect_directly(direct.address(pod, port), pod["metadata"]["name"])
        else:
            opening = self._open_tunnel(pod, port, relay=plan.relay, reason=plan.path.reason)
        async with tasks.group() as group:
            group.create_task(opening)
            group.create_task(self._slices.wait(plan.service, self._watch.lost, self._ended))

    async def _connect_directly(self, where: str, pod: str) -> None:
        """Return when the proxy in `pod` takes connections at its own address."""
        try:
            refused = self._when_closed(f"The proxy's address {where}", pod)
            opening = direct.until_open(where, seconds=self._patience, on_refused=refused)
            opened, _ = await tasks.first_done(opening, self._watch.lost)
            if opened is None or self._watch.lost.done():
                raise await self._ended()
            opened.result()
        except ConnectionRefusedError as error:
            raise ServiceError(
                f"The proxy does not listen: {error}.{await self._log_says(pod)}",
                hint=advice("See its log: {logs:proxy}."),
            ) from error
        self._session_log.update(direct=where)
        self._stage(Stage.TUNNEL, f"No tunnel: {self._session_log.record.data_path}.", done=True, direct=where)
