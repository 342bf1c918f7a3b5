"""Watch one cluster on behalf of all pages that show it.

Each kind of object is listed and watched once, whatever the number of pages; changes are collected for a moment and
sent as differences. The logs of proxies are followed too, because only they say which slices a proxy holds. Pods are by
far the most objects; until all of them have arrived, an outline is drawn from the Jobs.

Every message carries the identity of its cluster, and the time at which the tables were last known to be right, so that
a page can neither show one cluster's rows under another's name nor outdated rows as current.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ApiError, PathwaysError
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.base.tasks import Backoff
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.clock import boot_seconds
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.kube.objects import JOBS, JOBSETS, PATHWAYS_JOBS, PODS, Resource
from pathways_jupyter.kube.pods import logs
from pathways_jupyter.kube.watch import Change, ChangeType, is_refusal
from pathways_jupyter.service import discovery, names
from pathways_jupyter.service.derivation import Derived, derive, outline
from pathways_jupyter.service.feed import Feed, Message
from pathways_jupyter.service.leases import LeaseWatch
from pathways_jupyter.service.model import Service
from pathways_jupyter.service.names import current_user, label_value
from pathways_jupyter.service.namespacestate import RESOURCES, NamespaceState
from pathways_jupyter.service.placement import MOST_LOGS, Placement
from pathways_jupyter.service.podstate import State
from pathways_jupyter.service.tables import EMPTY, RowCache, Tables, differences, tables

OUTLINE_KINDS = frozenset({JOBS, JOBSETS})
"""Kinds that an outline is drawn from."""
OUTLINE_MIN_SLICES = 100
"""From so many slices on, an outline is drawn; with fewer, it would flicker for the moment until the pods are there."""

COLLECT_SECONDS = 0.05
"""Changes come in bursts: the first of a burst is drawn at once, all others within this time together."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 15.0
"""Between attempts at a cluster that does not answer, or refuses."""

_FAULT = "This is a fault of pathways_jupyter; see the log of the Jupyter server."

logger = logging.getLogger(__name__)


def identity(cluster: Cluster) -> str:
    """Return an opaque text that is equal for all contexts of the same namespace of the same cluster."""
    return f"{cluster.server} {cluster.namespace}"


class ClusterWatch(Feed):
    """The tables of one namespace of one cluster, kept up to date from the first listener until :meth:`close`.

    Args:
      cluster: The cluster to watch; its namespace is the one that is watched.

    Attributes:
      cluster: May be replaced by the same cluster with new credentials; the next attempt uses it.
      closed: Set once nothing is watched any more.
      pictures: The services as last drawn from complete data; empty until then.
    """

    # Its user keeps it for a while: a page that is reloaded finds complete tables.
    keeps_running = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.closed = asyncio.Event()
        self._identity = identity(cluster)
        # When the tables were last known to be right; only used while the watch is not live.
        self._as_of = 0.0
        self.pictures: tuple[Service, ...] = ()
        self._me = label_value(current_user())
        # What the watches know, and the kinds of which everything is known.
        self._known = NamespaceState()
        self._synced: set[Resource] = set()
        # Set for good, once there has been an outline.
        self._outlined = asyncio.Event()
        # By the uid of the proxy's pod, with its name: the one that follows it, after a reconnect, has its own slices.
        self._placements: dict[str, tuple[str, Placement]] = {}
        # That of the present attempt, or of the last one.
        self._client: Client | None = None
        self._drawn: Derived = {}
        self._rows: RowCache = {}
        self._tables: Tables = EMPTY
        self._state: Message = {}
        self._error: PathwaysError | None = None
        self._publish_state("loading", None)
        self._dirty = asyncio.Event()
        self._leases = LeaseWatch(self._dirty.set)
        self._ready = asyncio.Event()
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)

    @property
    def is_live(self) -> bool:
        """Return whether the tables show the cluster as it is now."""
        return bool(self._state["watch"] == "live")

    def _snapshot(self) -> Iterator[Message]:
        yield self._stamped(self._state)
        if self._tables is not EMPTY:
            yield self._whole()

    async def until_drawn(self) -> None:
        """Wait until the first picture is drawn, or the first attempt has failed."""
        await self._ready.wait()

    async def services(self) -> list[dict[str, Any]]:
        """Return the services with their free slices, once known.

        Raises:
          PathwaysError: The cluster cannot be reached, or refuses.
        """
        await self.until_drawn()
        if self._error is not None and self._state["watch"] == "failed":
            raise self._error.with_traceback(None)
        return list(self._tables["services"].values())

    async def close(self) -> None:
        """End all watches, and return when they have ended."""
        await tasks.stop(*self.stop())
        self.closed.set()

    async def _watch(self) -> None:
        async for _ in self._backoff:
            try:
                async with Client(self.cluster) as client, tasks.group() as group:
                    self._client, self._known = client, NamespaceState()
                    informer = Informer(client)
                    for resource in RESOURCES:
                        group.create_task(self._follow(informer, resource))
                    group.create_task(self._draw(client))
                    group.create_task(self._leases.run(client, self.cluster.namespace))
            except PathwaysError as error:
                logger.info("cluster %s: %s", self.cluster.name, error)
                self._publish_state("failed", error)
            except Exception as error:
                # Nothing awaits this task, so without this the pages would wait for ever.
                logger.exception("cluster %s", self.cluster.name)
                self._publish_state("failed", PathwaysError(f"The watch failed: {error!r}", hint=_FAULT))
            # The followers use the client that is closed now; the next picture starts new ones.
            for task in self._followers.values():
                task.cancel()
            self._followers.clear()
            self._synced.clear()
            self._ready.set()

    async def _follow(self, informer: Informer, resource: Resource) -> None:
        # The pods' first page comes with the other kinds, in one round trip. The server answers the lists of one client
        # in turn: with all their pages in between, the outline would take twice as long.
        after = self._outlined if resource is PODS else None
        await informer.follow(resource, partial(self._take, resource), namespace=self.cluster.namespace, after=after)

    def _take(self, resource: Resource, change: Change) -> None:
        changed = True
        if change.error is not None:
            # Draw nothing until this kind is complete again, because the picture combines all kinds.
            was_synced, before = resource in self._synced, self._known.objects[resource]
            self._synced.discard(resource)
            if resource is PATHWAYS_JOBS and not before and is_refusal(change.error):
                # They are optional: the cluster may not have the kind, or not let this user read it.
                self._synced.add(resource)
            elif is_refusal(change.error) or not was_synced:
                # The next attempt may have other credentials.
                raise change.error
            else:
                self._publish_state("lost", change.error)
        elif change.type is ChangeType.SYNCED:
            self._synced.add(resource)
            if self._synced >= OUTLINE_KINDS:
                self._outlined.set()
        elif change.type is ChangeType.DELETED:
            changed = self._known.drop(resource, change.object)
        else:
            changed = self._known.put(resource, change.object)
        if changed:
            self._dirty.set()

    async def _draw(self, client: Client) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self._redraw(client)
            await asyncio.sleep(COLLECT_SECONDS)

    def _redraw(self, client: Client) -> None:
        if len(self._synced) < len(RESOURCES):
            if self._tables is EMPTY and self._synced >= OUTLINE_KINDS:
                # The first time, when the pods are still on their way: draw an outline.
                jobs = self._known.objects[JOBS].values()
                infos = discovery.of_jobsets(list(self._known.objects[JOBSETS].values()))
                if sum(info.slices for info in infos) < OUTLINE_MIN_SLICES:
                    return
                drawn = [(info, outline(info, jobs)) for info in infos]
                self._as_of, self._tables = (
                    time.time(),
                    tables(drawn, heads={}, me=self._me, jobs=(), clock_ahead=client.clock_ahead),
                )
                self.publish(self._whole())
            return
        before, self._tables = self._tables, self._picture(client)
        first = not self._ready.is_set() or self._state["watch"] != "live"
        self._ready.set()
        if first:
            self._backoff.reset()
            # Also after an outage: all rows, because a page may have opened in between.
            self._publish_state("live", None)
            self.publish(self._whole())
            return
        put, drop = differences(before, self._tables)
        if put or drop:
            self.publish(self._stamped({"type": "tables", "reset": False, "put": put, "drop": drop}))

    def _picture(self, client: Client) -> Tables:
        pods, jobsets, proxies = self._known.pods, list(self._known.objects[JOBSETS].values()), [*self._known.proxies()]
        infos = discovery.of_jobsets(jobsets)
        placements = dict(self._placements.values())
        self._leases.follow(each for each in proxies if "orphan_of" not in each)
        silent = self._leases.reclaimable
        drawn = [
            (info, derive(info, pods=pods, jobs=proxies, placements=placements, reclaimable=silent, cache=self._drawn))
            for info in infos
        ]
        ahead = client.clock_ahead
        self.pictures = tuple(replace(service, clock_ahead=ahead) for _, service in drawn)
        self._follow_proxies(client, self.pictures)
        heads = {info.name: pods.of_head(info.name)[-1].name for info in infos if pods.of_head(info.name)}
        jobs = [*self._known.objects[PATHWAYS_JOBS].values(), *jobsets]
        return tables(drawn, heads=heads, me=self._me, jobs=jobs, cache=self._rows, clock_ahead=ahead)

    def _follow_proxies(self, client: Client, services: Sequence[Service]) -> None:
        """Start and stop followers of logs, so that there is one for each proxy whose pod is ready, up to a limit."""
        held = [holder for service in services for holder in service.holders if holder.pod]
        # This user's own come first.
        held.sort(key=lambda holder: holder.user != self._me)
        found = (self._known.pods.get(holder.pod) for holder in held[:MOST_LOGS])
        wanted = {pod.uid: pod for pod in found if pod is not None}
        for uid in set(self._followers) - set(wanted):
            self._followers.pop(uid).cancel()
        for uid in set(self._placements) - set(wanted):
            del self._placements[uid]
        for uid, pod in wanted.items():
            if uid not in self._followers and pod.state is State.READY:
                self._followers[uid] = asyncio.create_task(self._follow_log(client, pod.name, uid))

    async def _follow_log(self, client: Client, pod: str, uid: str) -> None:
        """Read from the log of a proxy which slices it holds, until its container ends."""
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        async for _ in backoff:
            # From its beginning each time, because a Placement is the sum of all lines.
            placement = Placement()
            lines = logs(
                client,
                pod,
                namespace=self.cluster.namespace,
                container=names.PROXY_CONTAINER,
                follow=True,
                timestamps=True,
            )
            try:
                async with contextlib.aclosing(lines):
                    async for line in lines:
                        backoff.reset()
                        if placement.feed(line) is not None or uid not in self._placements:
                            self._placements[uid] = pod, placement
                            self._dirty.set()
                return
            except PathwaysError as error:
                # Until the log can be read, the slices of this proxy are drawn as unknown, or as it said last.
                logger.info("log of %s: %s", pod, error)
                if isinstance(error, ApiError) and error.status in {401, 403, 404}:
                    return
            except Exception:
                # Nothing awaits this task, so an error that left it would end it silently.
                logger.exception("log of %s", pod)

    def _publish_state(self, state: str, error: PathwaysError | None) -> None:
        """Publish the state of the watch, if it changed: ``loading``, ``live``, ``lost`` or ``failed``."""
        if self._state and self.is_live:
            # Not now: the server was silent for a while before it was noticed.
            silent = boot_seconds() - self._client.last_received if self._client is not None else 0.0
            self._as_of = time.time() - silent
        problem = error.to_json(Face.SIDEBAR) if error is not None else None
        place = f"{self.cluster.name} / {self.cluster.namespace}"
        message = {"type": "watch", "watch": state, "problem": problem, "place": place}
        if message != self._state:
            self._state, self._error = message, error
            self.publish(self._stamped(message))

    def _stamped(self, message: Message) -> Message:
        # While the watch is live, its tables are right now, however long ago the last change was.
        return {**message, "identity": self._identity, "as_of": time.time() if self.is_live else self._as_of}

    def _whole(self) -> Message:
        put = {name: list(rows.values()) for name, rows in self._tables.items()}
        return self._stamped({"type": "tables", "reset": True, "put": put, "drop": {}})
