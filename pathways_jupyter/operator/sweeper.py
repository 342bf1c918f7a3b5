"""The sweeper deletes the proxies of dead sessions as soon as their leases expire.

Every connect sweeps too, but in a cluster where no user connects any more an abandoned proxy would hold its slices
until its deadline. The sweeper only lists, watches and deletes Jobs, pods and Leases. It looks each second at what it
has watched, and sends no request before something is to be deleted. What is to be deleted is listed before: a watch may
be late, and the Leases that it knows would all seem to expire. Several may sweep at the same time.

The proxy of a silent session with a relay is kept for longer; the log says when that begins, and when the session is
back.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ApiError, ClusterError, PathwaysError
from pathways_jupyter.kube.informer import Informers
from pathways_jupyter.kube.objects import JOBS, LEASES, PODS, Object, Resource
from pathways_jupyter.kube.watch import Change, ChangeType
from pathways_jupyter.service import abandoned, leases, names, proxy_job, untrusted

INTERVAL_SECONDS = 30.0
_KINDS = (LEASES, JOBS, PODS)
_PAUSE_SECONDS = 1.0


class Sweeper:
    """Sweeps one namespace, or all of them.

    Args:
      namespace: Empty for all.
      interval: Seconds until what could not be deleted is tried again.
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
        # What the last sweep was for, and when the next one may be for the same: something could not be deleted.
        self._swept: set[tuple[str, str]] = set()
        self._again = 0.0
        self._silent: set[tuple[str, str]] = set()
        # Why something cannot be done: by kind, why it is not followed, and for None, why the last sweep failed.
        self._troubles: dict[Resource | None, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep until `stop` is set."""
        following = (each.follow(functools.partial(self._take, each.resource)) for each in self._informers)
        for done in await tasks.first_done(self._sweep_until(stop), *following):
            if done is not None:
                await done

    async def _sweep_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._report_silent()
            await self._sweep()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _PAUSE_SECONDS)

    async def _sweep(self) -> None:
        if not self._synced >= {JOBS, LEASES}:
            return
        now, by_key = self._client.now(), self._known[LEASES]
        proxies = {**self._known[PODS], **self._known[JOBS]}
        judged = {key: abandoned.judge(each, by_key.get(key), now) for key, each in proxies.items()}
        ended = {key for key, each in judged.items() if each is not None and not each[0].kept}
        self._swept &= ended
        if not ended - self._swept and not (ended and time.monotonic() > self._again):
            return
        self._swept, self._again = ended, time.monotonic() + self._interval
        try:
            swept = await abandoned.sweep(self._client, self._namespace)
        except ClusterError as error:
            self._report_trouble(None, error)
            return
        self._report_trouble(None)
        for each in swept:
            self._say(str(each))

    def _report_silent(self) -> None:
        """Report the proxies that have become reclaimable, and those whose session is back."""
        now, known = self._client.now(), self._known[LEASES]
        kept = {key: leases.kept_until(each, now) for key, each in known.items() if leases.end(each, now) < now}
        silent = {key for key, until in kept.items() if now < until}
        for key in sorted(silent - self._silent):
            left = f"kept for {kept[key] - now:.0f} s more unless its slices are needed"
            self._say(f"{_job(known[key])} is reclaimable: its lease was not renewed; {left}")
        for key in sorted(self._silent - silent):
            if key in known and key not in kept:
                self._say(f"{_job(known[key])} is no longer reclaimable: its session is back")
        self._silent = silent

    def _take(self, resource: Resource, change: Change) -> None:
        if change.type is ChangeType.SYNCED:
            self._synced.add(resource)
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


def _job(lease: Object) -> str:
    """Return the Job of a Lease with its owner, in words."""
    owner = untrusted.SessionLabels.of(lease)
    return f"Job {'/'.join(leases.lease_key(lease))} (session {owner.session} of {owner.user or 'unknown'})"
