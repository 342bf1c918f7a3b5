"""The slices of one proxy: wait until it has them all, and report each that goes down or comes back.

Kubernetes does not know which slices a proxy has; its log is the only place that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ClusterError, PathwaysError
from pathways_jupyter.base.events import EventKind, Stage
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import Object
from pathways_jupyter.kube.pods import logs
from pathways_jupyter.service import abandoned, discovery, leases, names, placement, status
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.service.model import Service
from pathways_jupyter.service.names import job_name
from pathways_jupyter.service.placement import Placement
from pathways_jupyter.session import clusters, sweep
from pathways_jupyter.session.supervisor.session_log import SessionLog

CAPACITY_CHECK_SECONDS = 1.0
"""Free slices are placed faster than this; only after it is the cluster queried for who holds them."""
CAPACITY_REFRESH_SECONDS = 5.0
_LONGEST_REFRESH_SECONDS = 30.0
"""A proxy's own log says at once that it has its slices; only the words about who holds them may be so old. A session
that chooses before it has a proxy, and has waited for long, sees a free slice so late at most."""
_CHOICE_SECONDS = 0.3
"""First pause between two looks at the free slices before a proxy is made."""
_A_FEW_MINUTES = 180.0
_SPARE_CONNECTIONS = 2
"""As many as choosing slices opens."""
SILENT_PLACEMENT_SECONDS = 20.0
"""A proxy whose log does not report the placement, though slices are free, is used anyway after this time."""


class ProxySlices:
    """The slices that one proxy requested.

    Args:
      client: The cluster's client; the caller closes it.
      session_log: Receives all events.
      stage: Reports the progress of connecting.

    Attributes:
      instances: Number of slices per instance type; fewer than the config's after :meth:`choose` took fewer.
      reclaimed: Sessions whose slices were taken, because they were silent.
    """

    def __init__(self, client: Client, session_log: SessionLog, stage: Callable[..., None]) -> None:
        self._client = client
        self._session_log = session_log
        self._stage = stage
        self._config = session_log.config
        self.instances: Mapping[str, int] = self._config.instances
        self.reclaimed: list[str] = []
        self._reported = ""
        self._placement = Placement()
        self._down: set[int] = set()
        self._all_placed = asyncio.Event()
        self._log_unreadable = asyncio.Event()

    @property
    def _requested(self) -> int:
        return sum(self.instances.values())

    async def look(self, namespace: str) -> tuple[ServiceInfo, Service | None]:
        """Find the service, and with it the model that :meth:`choose` needs; None if that has nothing to choose.

        Raises: See :func:`.discovery.find` and :func:`.status.fetch`.
        """
        config = self._config
        finding = discovery.find(self._client, namespace, config.service, instances=config.instances)
        if config.wait and not config.at_least:
            async with tasks.group() as group:
                listing = group.create_task(finding)
                if clusters.Embedded.of(config) is None:
                    # For the pod's Lease, log and tunnel, which are asked for at once. To the embedded cluster a
                    # handshake takes only computing, of which its own processes have enough to do now.
                    group.create_task(self._client.open(_SPARE_CONNECTIONS))
            return listing.result(), None

        async def find() -> tuple[ServiceInfo, ...]:
            return (await finding,)

        # Without the proxies' logs, which takes two requests: usually there are no holders.
        ((service, model),) = await status.derive_services(self._client, namespace, find(), logs=False)
        return service, model

    async def choose(self, service: ServiceInfo, model: Service | None) -> None:
        """Choose slices before a proxy is made: fail at once if they are taken, or take fewer.

        With `config.wait` and without `config.at_least` nothing is checked: a proxy then waits in the queue of the
        resource manager, which places those that came first.

        Args:
          model: From :meth:`look`.

        Raises:
          CapacityError: Too few slices are free, and `config.wait` is over.
        """
        config, began, next_sweep = self._config, time.monotonic(), 0.0
        pauses = Backoff(_CHOICE_SECONDS, _LONGEST_REFRESH_SECONDS)
        if model is None:
            return
        enough, limit = config.at_least or self._requested, max(config.wait, CAPACITY_CHECK_SECONDS)
        # The slices of this session's former proxy count as free: it is replaced.
        job = job_name(self._session_log.record.user, self._session_log.record.id)
        while True:
            if model.available_to(job) < self._requested and model.holders:
                model = (await status.fetch(self._client, service.namespace, service.name))[0]
            if (free := model.available_to(job)) >= enough:
                self._take(service, min(self._requested, free))
                return
            if time.monotonic() >= next_sweep:
                if await self._sweep(service):
                    # There may be more that is silent.
                    model = (await status.fetch(self._client, service.namespace, service.name))[0]
                    continue
                next_sweep = time.monotonic() + CAPACITY_REFRESH_SECONDS
            waited = time.monotonic() - began
            if config.at_least and waited >= limit:
                self.instances = dict.fromkeys(self.instances, enough)
            # Not at once: a slice that just became free, or a worker that just started, may not show for a moment.
            self._wait_or_fail(model, waited, limit)
            await asyncio.sleep(min(pauses.next_pause(), max(0.0, limit - waited)))
            model = (await status.fetch(self._client, service.namespace, service.name, logs=False))[0]

    def _wait_or_fail(self, model: Service, waited: float, limit: float) -> None:
        """Report who holds the slices; raise CapacityError once `waited` seconds are the limit."""
        if waited >= limit:
            # Without --wait, report no waiting time: it would be the duration of the query.
            raise status.capacity_error(model, self.instances, waited=waited if self._config.wait else 0.0)
        message = str(status.capacity_error(model, self.instances))
        if self._config.wait and message != self._reported:
            self._reported = message
            self._session_log.waits(message)

    def _take(self, service: ServiceInfo, number: int) -> None:
        if number < self._requested:
            (kind,) = self.instances
            missing = f"the others of {service.name} are not free"
            message = f"Taking {number} of {self._requested} slices of {kind}: {missing}."
            self.instances = {kind: number}
            self._session_log.report(EventKind.WARNING, message)
        # Also where it takes them all: the session's previous proxy may have taken fewer.
        if self.instances != self._session_log.record.instances:
            self._session_log.update(instances=dict(self.instances))

    async def wait(
        self, service: ServiceInfo, lost: asyncio.Future[str], ended: Callable[[], Awaitable[PathwaysError]]
    ) -> None:
        """Wait until all slices are placed.

        Args:
          lost: Done when the proxy has ended.
          ended: Makes the error for a proxy that has.

        Raises:
          CapacityError: They are taken, and `config.wait` is over.
          ServiceError: The proxy or the service ended.
        """
        if await self._placed_within(CAPACITY_CHECK_SECONDS, lost, ended):
            return
        began = time.monotonic()
        pauses = Backoff(CAPACITY_REFRESH_SECONDS, _LONGEST_REFRESH_SECONDS)
        while True:
            ((service_info, model),) = await status.fetch_with_services(self._client, service.namespace, service.name)
            # Check the service again on each round: it may end for good in the meantime.
            discovery.check(service_info, self.instances)
            if self._all_placed.is_set():
                # Placed while the two requests above were under way; `model` may be older than that.
                return
            waited = time.monotonic() - began
            seconds = CAPACITY_CHECK_SECONDS
            if model.available_to(self._session_log.record.job) < self._requested:
                if not await self._sweep(service):
                    self._wait_or_fail(model, waited, self._config.wait)
                    seconds = min(pauses.next_pause(), max(0.0, self._config.wait - waited))
            elif self._log_unreadable.is_set():
                self._stage(
                    Stage.PLACE,
                    "Whether the slices are placed is not known, because the proxy's log cannot be read. They are "
                    "free; using the proxy.",
                    done=True,
                )
                return
            elif waited > SILENT_PLACEMENT_SECONDS:
                self._session_log.report(
                    EventKind.WARNING,
                    "The proxy has not said that its slices are placed, though they are free; using it anyway.",
                )
                return
            if await self._placed_within(seconds, lost, ended):
                return

    async def follow(self, pod: Object, *, keep: float = 0.0, joined: bool = False) -> None:
        """Follow the proxy's log as long as it lives, and report what it says about slices.

        Args:
          keep: Seconds for which the proxy is kept without a connection.
          joined: The proxy is older than this session: of what its log said before, only the outcome is news.
        """
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        try:
            past = await self._recall(name, namespace) if joined else 0
            lines = logs(
                self._client,
                name,
                namespace=namespace,
                container=names.PROXY_CONTAINER,
                follow=True,
                patience=keep,
                pod=pod,
            )
            async with contextlib.aclosing(lines):
                async for line in lines:
                    # What an attached job's log said before this session was read already, as a whole.
                    if past:
                        past -= 1
                        continue
                    self._transition(line)
        except ClusterError as error:
            self._log_unreadable.set()
            reason = f"{error} {error.hint}".strip()
            message = f"The proxy's log cannot be read, so a slice that goes down will not be reported: {reason}"
            self._session_log.report(EventKind.WARNING, message)

    async def _recall(self, pod: str, namespace: str) -> int:
        """Report the present state of each slice by the log so far; return the number of its lines."""
        read, latest = 0, dict[int, str]()
        async for line in logs(self._client, pod, namespace=namespace, container=names.PROXY_CONTAINER):
            read += 1
            if (change := placement.parse(line)) is not None:
                latest[change.slice] = line
        # What is unplaced now was placed once: the job would not run otherwise.
        self._all_placed.set()
        for line in latest.values():
            self._transition(line)
        return read

    async def _sweep(self, service: ServiceInfo) -> bool:
        """Remove proxies of dead sessions, which may hold slices, and one that is silent; return whether any were."""
        here = await sweep.sweep_dead()
        swept = [
            each
            for each in await abandoned.sweep(self._client, service.namespace, reclaim=1, service=service.name)
            if not each.error
        ]
        for each in swept:
            silent = f"{each.silent / 60:.0f} min" if each.silent >= _A_FEW_MINUTES else f"{each.silent:.0f} s"
            whose = f"{each.user or 'an unknown user'}, {each.notebook or f'session {each.session}'}"
            message = f"Reclaimed slices from {whose} (no heartbeat for {silent})."
            self._session_log.report(EventKind.WARNING, message, session=each.session)
            self.reclaimed.append(each.session)
        if swept and (job := self._session_log.record.job):
            # For the one who comes back. Before the Lease exists it is written when it is created.
            with contextlib.suppress(ClusterError):
                await leases.note_reclaimed(self._client, job, namespace=service.namespace, sessions=self.reclaimed)
        return bool(swept or here)

    async def _placed_within(
        self, seconds: float, lost: asyncio.Future[str], ended: Callable[[], Awaitable[PathwaysError]]
    ) -> bool:
        """Wait up to `seconds` for all slices to be placed, less when the log turns out to be unreadable."""
        unreadable = [] if self._log_unreadable.is_set() else [self._log_unreadable.wait()]
        await tasks.first_done(self._all_placed.wait(), lost, *unreadable, seconds=seconds)
        if lost.done():
            raise await ended()
        return self._all_placed.is_set()

    def _transition(self, line: str) -> None:
        change = self._placement.feed(line)
        if change is None:
            return
        known = {each.index: each.number for each in self._session_log.record.slices}
        # The log line of a slice that goes down may lack its worker Job, hence its number.
        number = change.number if change.number is not None else known.get(change.slice)
        name = _name(number, change.slice)
        data = {"slice": change.slice, "number": number, "worker_job": change.worker_job}
        if change.placed:
            healed = change.slice in self._down
            self._down.discard(change.slice)
            kind = EventKind.SLICE_HEALED if healed else EventKind.SLICE_PLACED
            if worker := change.worker_job:
                message = f"{name} is placed on {worker} again." if healed else f"{name} is placed on {worker}."
            else:
                message = f"{name} is placed again." if healed else f"{name} is placed."
            self._session_log.report(kind, message, **data)
            if self._placement.placed >= self._requested:
                if not self._all_placed.is_set():
                    self._stage(
                        Stage.PLACE,
                        "All slices are placed." if self._requested > 1 else "The slice is placed.",
                        done=True,
                    )
                self._all_placed.set()
        elif change.slice not in self._down and self._all_placed.is_set():
            # Before that, one without a place is still waited for, and is no loss.
            self._down.add(change.slice)
            self._session_log.report(EventKind.SLICE_DOWN, f"{name} is down.", **data)


def _name(number: int | None, index: int) -> str:
    """Return the name of a slice for the beginning of a sentence; the words of a ``SessionSlice``."""
    if number is None:
        return f"Your slice {index}"
    return f"Slice {number}" if number == index else f"Slice {number} (your {index})"
