"""One cluster, watched once for all pages that look at it.

Each kind of object is listed and watched once, whatever the number of pages; changes are collected for a moment and
sent as differences. Logs of proxies are followed as well, because only they say which slices a proxy holds. Pods are
the many; until all of them are known, what the Jobs say is drawn.

Every message carries the identity of the cluster that it is about, and the time at which the cluster was last known to
be as the tables say, so that a page can neither show one cluster's rows under another's name nor old rows as new ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pathways_jupyter.errors import ApiError, PathwaysError
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.cluster import Cluster
from pathways_jupyter.kube.objects import JOBS, JOBSETS, PATHWAYS_JOBS, PODS, Object, Resource
from pathways_jupyter.kube.pods import logs
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.service import discovery, names, status
from pathways_jupyter.service.listeners import Listener, Listeners
from pathways_jupyter.service.naming import current_user, label_value
from pathways_jupyter.service.outline import outline
from pathways_jupyter.service.placement import Placement
from pathways_jupyter.service.podstate import State, pod_state
from pathways_jupyter.service.tables import EMPTY, Tables, difference, tables

RESOURCES = (PODS, JOBS, JOBSETS, PATHWAYS_JOBS)

COLLECT_SECONDS = 0.05
"""Changes come in bursts: the first of a burst is drawn at once, what follows within this time in one picture."""
RETRY_SECONDS = 5.0
"""Between attempts to reach a cluster that did not answer, or refused."""

_FAULT = "This is a fault of pathways_jupyter; see the log of the Jupyter server."

logger = logging.getLogger(__name__)


def identity(cluster: Cluster) -> str:
    """Return what two ways to the same namespace of the same cluster have in common: an opaque text."""
    return f"{cluster.server} {cluster.namespace}"


class ClusterWatch:
    """The tables of one namespace of one cluster, kept up to date while anyone listens.

    Args:
      cluster: Where to look; its namespace is the one that is watched.

    Attributes:
      cluster: May be replaced by another way to the same place (new credentials); the next attempt uses it.
      closed: Set once nothing is watched any more.
      pictures: The services as they were last drawn from all that there is; empty until then.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.closed = asyncio.Event()
        self._identity = identity(cluster)
        self._heard = 0.0
        self.pictures: tuple[status.Service, ...] = ()
        self._me = label_value(current_user())
        self._listeners = Listeners()
        self._objects: dict[Resource, dict[str, Object]] = {}
        self._synced: set[Resource] = set()
        self._placements: dict[str, Placement] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._drawn: status.Drawn = {}
        self._tables: Tables = EMPTY
        self._hearing: dict[str, Any] = {}
        self._hear("loading", None)
        self._dirty = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def looked_at(self) -> bool:
        """Whether anyone listens."""
        return bool(self._listeners)

    @property
    def is_live(self) -> bool:
        """Whether the tables are what the cluster says now."""
        return bool(self._hearing["hearing"] == "live")

    def add(self, listener: Listener) -> None:
        """Send `listener` what is known, and every change from now on. What it raises ends its own membership only."""
        self._listeners.add(listener)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"watch {self.cluster.name}")
        self._listeners.send(listener, self._stamped(self._hearing))
        if self._tables is not EMPTY and listener in self._listeners:
            self._listeners.send(listener, self._whole())

    def remove(self, listener: Listener) -> None:
        """Send `listener` nothing more."""
        self._listeners.remove(listener)

    async def services(self) -> list[dict[str, Any]]:
        """Return the services with what each has free, once known.

        Raises:
          PathwaysError: The cluster cannot be reached, or refuses.
        """
        await self._ready.wait()
        problem = self._hearing["problem"]
        if problem and self._hearing["hearing"] == "failed":
            raise PathwaysError(problem["message"], hint=problem["hint"])
        return list(self._tables["services"].values())

    async def close(self) -> None:
        """End all watches."""
        tasks = [task for task in (self._task, *self._following.values()) if task is not None]
        for task in tasks:
            task.cancel()
        # Not awaited one by one: a caller that is cancelled while waiting would take that for the task's own end.
        await asyncio.gather(*tasks, return_exceptions=True)
        self._following.clear()
        self._task = None
        self.closed.set()

    async def _run(self) -> None:
        while True:
            try:
                async with Client(self.cluster) as client, asyncio.TaskGroup() as group:
                    for resource in RESOURCES:
                        group.create_task(self._follow(client, resource))
                    group.create_task(self._draw(client))
            except* PathwaysError as failures:
                error = _first(failures)
                logger.info("cluster %s: %s", self.cluster.name, error)
                self._hear("failed", error)
            except* Exception as faults:
                # Pages must be notified, or they would wait for ever.
                logger.exception("cluster %s", self.cluster.name)
                self._hear("failed", PathwaysError(f"The watch failed: {faults.exceptions[0]!r}", hint=_FAULT))
            for task in self._following.values():
                task.cancel()
            self._following.clear()
            self._synced.clear()
            self._ready.set()
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self, client: Client, resource: Resource) -> None:
        known = self._objects[resource] = {}
        changes = watch(client, resource, namespace=self.cluster.namespace)
        try:
            async with contextlib.aclosing(changes):
                async for change in changes:
                    if change.type is ChangeType.LOST:
                        # Nothing is drawn until this kind is complete again: one that is missing changes makes the
                        # whole picture old.
                        self._synced.discard(resource)
                        self._hear("lost", change.error)
                    elif change.type is ChangeType.SYNCED:
                        self._synced.add(resource)
                    elif change.type is ChangeType.DELETED:
                        known.pop(_key(change.object), None)
                    else:
                        known[_key(change.object)] = change.object
                    self._dirty.set()
        except ApiError as error:
            # A cluster need not have every kind: it is no problem that there are no PathwaysJobs.
            if resource is not PATHWAYS_JOBS or error.status not in {403, 404}:
                raise
            self._synced.add(resource)
            self._dirty.set()

    async def _draw(self, client: Client) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self._redraw(client)
            await asyncio.sleep(COLLECT_SECONDS)

    def _redraw(self, client: Client) -> None:
        if len(self._synced) < len(RESOURCES):
            if self._tables is EMPTY and self._synced >= {JOBS, JOBSETS}:
                self._heard = time.time()
                self._tables = self._outline()
                self._listeners.publish(self._whole())
            return
        before, self._tables = self._tables, self._picture(client)
        first = not self._ready.is_set() or self._hearing["hearing"] != "live"
        self._ready.set()
        if first:
            self._hear("live", None)
            self._listeners.publish(self._whole())
            return
        put, drop = difference(before, self._tables)
        if put or drop:
            self._listeners.publish(self._stamped({"type": "tables", "reset": False, "put": put, "drop": drop}))

    def _outline(self) -> Tables:
        jobs = list(self._objects[JOBS].values())
        infos = discovery.of_jobsets(list(self._objects[JOBSETS].values()))
        return tables([(info, outline(info, jobs)) for info in infos], heads={}, me=self._me, jobs=())

    def _picture(self, client: Client) -> Tables:
        pods = list(self._objects[PODS].values())
        jobs = list(self._objects[JOBS].values())
        jobsets = list(self._objects[JOBSETS].values())
        infos = discovery.of_jobsets(jobsets)
        drawn = [
            (info, status.picture(info, pods=pods, jobs=jobs, placements=self._placements, drawn=self._drawn))
            for info in infos
        ]
        self.pictures = tuple(service for _, service in drawn)
        self._follow_proxies(client, self.pictures)
        proxies = {holder.job for _, service in drawn for holder in service.holders}
        shown = [*self._objects[PATHWAYS_JOBS].values(), *jobsets]
        shown += [job for job in jobs if job["metadata"]["name"] in proxies]
        return tables(drawn, heads=_heads(pods), me=self._me, jobs=shown)

    def _follow_proxies(self, client: Client, services: Sequence[status.Service]) -> None:
        wanted = {holder.pod: holder.job for service in services for holder in service.holders if holder.pod}
        for pod in [pod for pod in self._following if pod not in wanted]:
            self._following.pop(pod).cancel()
        gone = set(self._placements) - set(wanted.values())
        for job in gone:
            del self._placements[job]
        known = self._objects[PODS]
        for pod, job in wanted.items():
            if pod not in self._following and pod in known and pod_state(known[pod])[0] is State.READY:
                self._following[pod] = asyncio.create_task(self._follow_log(client, pod, job))

    async def _follow_log(self, client: Client, pod: str, job: str) -> None:
        """Read from the log of a proxy which slices it holds, until its container ends."""
        while True:
            # Read from its beginning each time: a Placement is the sum of all lines.
            placement = Placement()
            lines = logs(client, pod, namespace=self.cluster.namespace, container=names.PROXY_CONTAINER, follow=True)
            try:
                async with contextlib.aclosing(lines):
                    async for line in lines:
                        if placement.feed(line) is not None or job not in self._placements:
                            self._placements[job] = placement
                            self._dirty.set()
                return
            except ApiError as error:
                # Until there is one that can be read, the slices of this proxy are drawn as not known.
                logger.info("log of %s: %s", pod, error)
                if error.status in {401, 403, 404}:
                    return
            except PathwaysError as error:
                logger.info("log of %s: %s", pod, error)
            except Exception:
                # Nothing awaits this task: an error that left it would end the following of this log silently.
                logger.exception("log of %s", pod)
            await asyncio.sleep(RETRY_SECONDS)

    def _hear(self, hearing: str, error: PathwaysError | None) -> None:
        """Publish how the connection to the cluster is: ``loading``, ``live``, ``lost`` or ``failed``."""
        if self._hearing and self.is_live:
            self._heard = time.time()
        problem = {"message": str(error), "hint": error.hint} if error is not None else None
        place = f"{self.cluster.name} / {self.cluster.namespace}"
        message = {"type": "hearing", "hearing": hearing, "problem": problem, "place": place}
        if message != self._hearing:
            self._hearing = message
            self._listeners.publish(self._stamped(message))

    def _stamped(self, message: dict[str, Any]) -> dict[str, Any]:
        # As long as the cluster can be heard, its tables are of now, however long ago the last change was.
        return {**message, "identity": self._identity, "heard": time.time() if self.is_live else self._heard}

    def _whole(self) -> dict[str, Any]:
        put = {name: list(rows.values()) for name, rows in self._tables.items()}
        return self._stamped({"type": "tables", "reset": True, "put": put, "drop": {}})


def _key(item: Object) -> str:
    return str(item["metadata"]["name"])


def _heads(pods: list[Object]) -> Mapping[str, str]:
    """Names of the resource managers' pods, by service."""
    labelled = ((pod, pod["metadata"].get("labels") or {}) for pod in pods)
    return {
        str(labels.get(names.JOBSET_NAME_LABEL)): _key(pod)
        for pod, labels in labelled
        if labels.get(names.REPLICATED_JOB_LABEL) == names.HEAD_JOB
    }


def _first(failures: BaseExceptionGroup[PathwaysError]) -> PathwaysError:
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, PathwaysError)
    return error
