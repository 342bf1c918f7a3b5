"""What stands behind the routes: sessions and clusters, shared by all pages of one Jupyter server.

Pages come and go; a cluster is watched while at least one looks at it, and a little longer, so that a page that is
loaded again finds it watched. Sweeping is done here as well, because a Jupyter server outlives its kernels.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from pathways_jupyter import entry
from pathways_jupyter.errors import ConfigError, PathwaysError, SessionError
from pathways_jupyter.kube import auth, objects, pods
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.cluster import Cluster
from pathways_jupyter.server import scope as scopes
from pathways_jupyter.server.scope import Scope
from pathways_jupyter.server.sessionwatch import SessionWatch
from pathways_jupyter.service import leases
from pathways_jupyter.service.clusterwatch import ClusterWatch
from pathways_jupyter.service.naming import current_user, label_value
from pathways_jupyter.session import client, registry, sweep
from pathways_jupyter.session.protocol import Method, config_from_json
from pathways_jupyter.session.registry import SessionRecord

LINGER_SECONDS = 10.0
"""How long a cluster is watched that nobody looks at any more."""
ACTION_SECONDS = 150.0
"""How long disconnect and reconnect may take: as long as the supervisor gives the API server, and some."""
SUPERVISOR_SECONDS = 15.0
"""How long the supervisor of a kernel that ended has to clean up by itself."""
SWEEP_SECONDS = 300.0
LOG_LINES = 5000

Send = Callable[[dict[str, Any]], None]

logger = logging.getLogger(__name__)


class Hub:
    """One for each Jupyter server; it belongs to the server's event loop."""

    def __init__(self) -> None:
        self.sessions = SessionWatch()
        self._watches: dict[tuple[str, str, str], ClusterWatch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def watches(self) -> tuple[ClusterWatch, ...]:
        """The clusters that are watched now."""
        return tuple(self._watches.values())

    async def watch(self, scope: Scope) -> ClusterWatch:
        """Return the watch of `scope`; see :meth:`watch_cluster`.

        Raises:
          PathwaysError: There is no such cluster.
        """
        return self.watch_cluster((await scopes.resolve(scope)).cluster)

    def watch_cluster(self, cluster: Cluster) -> ClusterWatch:
        """Return the watch of `cluster`, shared by all who look at the same place; closed when it has no listeners."""
        key = (cluster.server, cluster.name, cluster.namespace)
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = ClusterWatch(cluster)
            self.spawn(self._end_when_alone(key, watch))
            self.spawn(self._sweep_while_watched(watch))
        else:
            # The same place, but perhaps with newer credentials.
            watch.cluster = cluster
        return watch

    async def services(self, scope: Scope) -> list[dict[str, Any]]:
        """The services at `scope`, with what each has free.

        Raises:
          PathwaysError: The cluster cannot be heard.
        """
        watch = await self.watch(scope)

        def listen(message: dict[str, Any]) -> None:
            """Holds the watch while it is asked."""

        watch.add(listen)
        try:
            return await watch.services()
        finally:
            watch.remove(listen)

    async def act(self, session: str, method: Method) -> Any:
        """Has the supervisor of `session` disconnect or reconnect; works while its kernel is busy.

        Raises:
          SessionError: There is no such session.
          PathwaysError: It could not be done.
        """
        record = await asyncio.to_thread(registry.read, session)
        if record is None:
            raise SessionError(f"There is no session {session}.", hint="It may have ended in the meantime.")
        if method is Method.DISCONNECT and not await asyncio.to_thread(sweep.may_live, record):
            await sweep.sweep(record, patience=SUPERVISOR_SECONDS)
            return None
        if method is Method.RECONNECT:
            await asyncio.to_thread(entry.revive, config_from_json(record.config), record.state)
        return await client.arequest(record, method, patience=ACTION_SECONDS)

    async def sweep(self, scope: Scope, *, dry_run: bool) -> list[str]:
        """Removes this user's stale proxies and what dead sessions left; returns what it removed, or would.

        Raises:
          PathwaysError: The cluster cannot be heard, or something could not be removed.
        """
        removed = [record.id for record in await asyncio.to_thread(sweep.dead)]
        for record in await asyncio.to_thread(sweep.dead) if not dry_run else ():
            await sweep.sweep(record, patience=SUPERVISOR_SECONDS)
        cluster = (await scopes.resolve(scope)).cluster
        async with Client(cluster) as kube:
            swept = await leases.sweep(kube, cluster.namespace, dry_run=dry_run, user=label_value(current_user()))
        for each in swept:
            if each.error:
                raise PathwaysError(f"{each.job} could not be removed: {each.error}", hint="Try again later.")
        return [*removed, *(each.job for each in swept if each.session not in removed)]

    async def log(self, scope: Scope, pod: str, *, container: str, follow: bool) -> AsyncGenerator[str, None]:
        """Yields the lines of a pod's log; of its first container unless one is named.

        Raises:
          PathwaysError: There is no such pod, or it cannot be read.
        """
        cluster = (await scopes.resolve(scope)).cluster
        async with Client(cluster) as kube:
            if not container:
                found = await objects.get(kube, objects.PODS, pod, namespace=cluster.namespace)
                container = str(found["spec"]["containers"][0]["name"])
            lines = pods.logs(
                kube, pod, namespace=cluster.namespace, container=container, follow=follow, tail=LOG_LINES
            )
            async with contextlib.aclosing(lines):
                async for line in lines:
                    yield line

    def kernel_ended(self, kernel_id: str) -> asyncio.Task[None]:
        """Sees to it that nothing is left of a kernel's sessions, should their supervisors not do so."""
        return self.spawn(self._sweep_kernel(kernel_id))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs `work` beside everything else; what it raises is logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Ends everything."""
        self.sessions.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*(watch.close() for watch in self._watches.values()))
        self._watches.clear()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s failed", task.get_name(), exc_info=error)

    async def _end_when_alone(self, key: tuple[str, str, str], watch: ClusterWatch) -> None:
        alone = 0
        while alone < 2:
            await asyncio.sleep(LINGER_SECONDS / 2)
            alone = 0 if watch.looked_at else alone + 1
        self._watches.pop(key, None)
        await watch.close()

    async def _sweep_while_watched(self, watch: ClusterWatch) -> None:
        while watch in self._watches.values():
            try:
                async with Client(watch.cluster) as kube:
                    namespace = watch.cluster.namespace
                    for each in await leases.sweep(kube, namespace, user=label_value(current_user())):
                        logger.info("removed %s: %s %s", each.job, each.reason, each.error)
            except PathwaysError as error:
                logger.info("could not sweep %s: %s", watch.cluster.name, error)
            except Exception:
                # One round that failed must not be the last one.
                logger.exception("could not sweep %s", watch.cluster.name)
            await asyncio.sleep(SWEEP_SECONDS)

    async def _sweep_kernel(self, kernel_id: str) -> None:
        await asyncio.sleep(SUPERVISOR_SECONDS)
        for record in await asyncio.to_thread(sweep.dead):
            if record.kernel_id == kernel_id:
                await _sweep_record(record)


async def _sweep_record(record: SessionRecord) -> None:
    try:
        await sweep.sweep(record)
        logger.info("session %s: cleaned up after its kernel and its supervisor", record.id)
    except PathwaysError as error:
        logger.warning("session %s: %s", record.id, error)


def contexts() -> dict[str, Any]:
    """Where a user of this server may connect to; works without any kubeconfig."""
    from pathways_jupyter import config

    said: dict[str, Any] = {"contexts": [], "current": "", "local": False, "profiles": [], "problem": None}
    said["local"] = scopes.embedded_cluster_runs()
    try:
        said["profiles"] = sorted(config.profiles())
        known, current = auth.contexts()
        said["contexts"], said["current"] = list(known), current
    except ConfigError as error:
        said["problem"] = {"message": str(error), "hint": error.hint}
    return said
