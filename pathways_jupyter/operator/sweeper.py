"""The sweeper deletes the proxies of dead sessions as soon as their leases expire.

Every connect sweeps too, but in a cluster where no user connects any more an abandoned proxy would hold its slices
until its deadline. The sweeper only lists, watches and deletes Jobs, pods and Leases. It watches them, so it knows when
the next Lease expires, and sends no requests in between. What is to be deleted is listed before: a watch may be late,
and the Leases that it knows would all seem to expire. Several may sweep at the same time.

The proxy of a silent session with a relay is kept for longer; the log says when that begins, and when the session is
back.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ApiError, ClusterError, PathwaysError
from pathways_jupyter.kube.informer import Informers
from pathways_jupyter.kube.objects import JOBS, LEASES, PODS, Object, Resource
from pathways_jupyter.kube.watch import Change, ChangeType
from pathways_jupyter.service import abandoned, leases, names, proxy_job, untrusted

INTERVAL_SECONDS = 30.0
_KINDS = (LEASES, JOBS, PODS)
_SHORTEST_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class _Lease:
    """A Lease as the sweeper needs it; all times are in seconds since the epoch.

    Attributes:
      whose: Its session and user, in words.
      end: When it runs out.
      kept_until: When its Job is no longer kept; later than `end` where there is a relay.
    """

    whose: str
    end: float
    kept_until: float

    @classmethod
    def of(cls, lease: Object, now: float) -> _Lease:
        owner = untrusted.SessionLabels.of(lease)
        whose = f"session {owner.session} of {owner.user or 'unknown'}"
        return cls(whose, leases.end(lease, now), leases.kept_until(lease, now))


class Sweeper:
    """Sweeps one namespace, or all of them.

    Args:
      namespace: Empty for all.
      interval: Longest time between sweeps in seconds, for Jobs that never got a lease.
      say: Called with each action, in words.
    """

    def __init__(
        self,
        informers: Informers,
        *,
        namespace: str = "",
        interval: float = INTERVAL_SECONDS,
        say: Callable[[str], None],
    ) -> None:
        self._client = informers.client
        self._informers = [informers.of(each, namespace=namespace, labels=names.SESSIONS) for each in _KINDS]
        self._say = say
        self._namespace = namespace
        self._interval = interval
        # By kind, namespace and name; of the pods only proxies that have lost their Job.
        self._known: dict[Resource, dict[tuple[str, str], Object]] = {each: {} for each in _KINDS}
        self._synced: set[Resource] = set()
        # Whether all objects of a kind have become known since the last sweep.
        self._news = False
        self._leases: dict[str, _Lease] = {}
        # The API server's time until which the ends of leases were waited for. What a sweep could not delete then waits
        # for the next interval.
        self._handled_until = 0.0
        self._silent: set[str] = set()
        self._changed = asyncio.Event()
        # Why something cannot be done: by kind, why it is not followed, and for None, why the last sweep failed.
        self._troubles: dict[Resource | None, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep until `stop` is set."""
        following = (each.follow(functools.partial(self._take, each.resource)) for each in self._informers)
        for done in await tasks.first_done(self._sweep_until(stop), *following):
            if done is not None:
                await done

    async def _sweep_until(self, stop: asyncio.Event) -> None:
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                await self._sweep()
                await self._pause(stopping)
        finally:
            await tasks.stop(stopping)

    async def _sweep(self) -> None:
        now, by_key = self._client.now(), self._known[LEASES]
        proxies = (*self._known[JOBS].values(), *self._known[PODS].values())
        judged = (abandoned.judge(each, by_key.get(leases.lease_key(each)), now) for each in proxies)
        if not self._synced >= {JOBS, LEASES} or all(each is None or each[0].kept for each in judged):
            return
        try:
            swept = await abandoned.sweep(self._client, self._namespace)
        except ClusterError as error:
            self._report_trouble(None, error)
            return
        self._report_trouble(None)
        for each in swept:
            self._say(str(each))

    async def _pause(self, stopping: asyncio.Task[bool]) -> None:
        """Wait until the next lease may have ended."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._interval
        while not stopping.done():
            now = self._client.now()
            self._report_silent(now)
            if self._news:
                self._news = False
                return
            ends = (at for each in self._leases.values() for at in (each.end, each.kept_until))
            due = min((at for at in ends if at > self._handled_until), default=float("inf")) - now
            # Not at once: those that end in the same moment are one sweep.
            left = min(deadline - loop.time(), max(due, _SHORTEST_PAUSE_SECONDS))
            if left <= 0:
                return
            self._changed.clear()
            if not any(await tasks.first_done(self._changed.wait(), stopping, seconds=left)):
                # Timed out: a lease has expired, or the interval is over.
                self._handled_until = self._client.now()
                self._report_silent(self._handled_until)
                return
            # One look at all Leases for the changes of a moment: one with each renewal would cost their square.
            await asyncio.wait({stopping}, timeout=_SHORTEST_PAUSE_SECONDS)

    def _report_silent(self, now: float) -> None:
        """Report the proxies that have become reclaimable, and those whose session is back."""
        silent = {key for key, each in self._leases.items() if each.end < now < each.kept_until}
        for key in sorted(silent - self._silent):
            each = self._leases[key]
            left = f"kept for {each.kept_until - now:.0f} s more unless its slices are needed"
            self._say(f"Job {key} ({each.whose}) is reclaimable: its lease was not renewed; {left}")
        for key in sorted(self._silent - silent):
            if key in self._leases and now <= self._leases[key].end:
                self._say(f"Job {key} ({self._leases[key].whose}) is no longer reclaimable: its session is back")
        self._silent = silent

    def _take(self, resource: Resource, change: Change) -> None:
        if change.type is ChangeType.SYNCED:
            self._synced.add(resource)
            self._news = True
            self._changed.set()
            self._report_trouble(resource)
        elif change.type is ChangeType.LOST:
            self._synced.discard(resource)
            # An account of an older version, which may not read pods, sweeps Jobs.
            if not (resource is PODS and isinstance(change.error, ApiError) and change.error.status == 403):
                self._report_trouble(resource, change.error)
        else:
            current = None if change.type is ChangeType.DELETED else change.object
            if resource is PODS and current is not None:
                current = proxy_job.of_orphan(current)
            key = leases.lease_key(change.object)
            if current is None:
                self._known[resource].pop(key, None)
            else:
                self._known[resource][key] = current
            if resource is LEASES:
                self._take_lease(current, change.object)

    def _take_lease(self, current: Object | None, lease: Object) -> None:
        """Note a Lease; `current` is None when it was deleted."""
        key = "/".join(leases.lease_key(lease))
        if current is None:
            self._leases.pop(key, None)
        else:
            self._leases[key] = _Lease.of(lease, self._client.now())
        self._changed.set()

    def _report_trouble(self, resource: Resource | None, error: PathwaysError | None = None) -> None:
        """Report an error unless it is known, also from another kind; or once all is well again, that it is."""
        before = set(self._troubles.values())
        if error is None:
            self._troubles.pop(resource, None)
        else:
            self._troubles[resource] = str(error)
            if str(error) not in before:
                self._say(str(error))
        if before and not self._troubles:
            self._say("the API server answers again")
