"""The sessions and clusters behind the routes, shared by all pages of one Jupyter server.

A cluster is watched while at least one page shows it and for a few seconds more, so that a reloaded page does not start
the watch again. Sweeping is done here as well, because a Jupyter server outlives its kernels.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from pathways_jupyter.actions import cluster
from pathways_jupyter.base import setting_sources, tasks
from pathways_jupyter.base.config import SETTINGS
from pathways_jupyter.base.errors import ClusterError, ConfigError, PathwaysError
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.kube import kubeconfig, objects, pods
from pathways_jupyter.kube.client import Client, preload
from pathways_jupyter.kube.cluster_access import Cluster
from pathways_jupyter.profile import summary
from pathways_jupyter.render import profile as render
from pathways_jupyter.render.view import View
from pathways_jupyter.server import scope as scopes
from pathways_jupyter.server.scope import Scope
from pathways_jupyter.server.sessionwatch import SessionWatch
from pathways_jupyter.service import abandoned
from pathways_jupyter.service.clusterwatch import ClusterWatch
from pathways_jupyter.service.names import current_user, label_value
from pathways_jupyter.session import client, registry, sweep
from pathways_jupyter.session.protocol import Method, config_from_json, error_from_json
from pathways_jupyter.session.verdicts import SessionCommand, verdict

LINGER_SECONDS = 10.0
"""Time for which a cluster without listeners stays watched."""
SUPERVISOR_SECONDS = 15.0
"""Time for the clean-up of an ended kernel's supervisor, before the session is swept from here."""
SWEEP_SECONDS = 300.0
LOG_LINES = 5000

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ServerState:
    """The state of one Jupyter server's extension; used on the server's event loop only."""

    def __init__(self) -> None:
        self.sessions = SessionWatch()
        self._watches: dict[tuple[str, str, str], ClusterWatch] = {}
        self._tasks = tasks.Running()
        self._preparing: asyncio.Task[None] | None = None

    async def watch(self, scope: Scope) -> ClusterWatch:
        """Return the watch of `scope`; see :meth:`watch_cluster`.

        Raises:
          PathwaysError: The cluster of `scope` cannot be resolved.
        """
        return self.watch_cluster((await scopes.resolve(scope)).cluster)

    def watch_cluster(self, cluster: Cluster) -> ClusterWatch:
        """Return the watch of `cluster`, shared by all its listeners; closed when it has none."""
        key = (cluster.server, cluster.name, cluster.namespace)
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = ClusterWatch(cluster)
            self.spawn(self._keep(key, watch))
        else:
            # The same cluster, but perhaps with newer credentials.
            watch.cluster = cluster
        return watch

    def prepare(self) -> None:
        """Import in the background what the first look at a cluster needs, unless there is no cluster to look at."""
        if self._preparing is None:
            self._preparing = self.spawn(_prepare())

    async def services(self, scope: Scope) -> list[dict[str, Any]]:
        """Return the services of `scope` with their free slices.

        Raises:
          PathwaysError: The cluster cannot be reached.
        """
        watch = await self.watch(scope)

        def listen(message: dict[str, Any]) -> None:
            """Ignore messages: this listener only keeps the watch open during the query."""

        watch.add(listen)
        try:
            return await watch.services()
        finally:
            watch.remove(listen)

    async def act(self, session: str, method: Method) -> Any:
        """Ask the supervisor of `session` to disconnect or reconnect, or for its arrays, even while its kernel is busy.

        Raises:
          SessionError: There is no such session, or it does not get a new proxy now.
          PathwaysError: The supervisor's answer is an error.
        """
        record = await asyncio.to_thread(registry.read, session)
        if record is None:
            raise scopes.no_session(session)
        if method is Method.DISCONNECT and not await asyncio.to_thread(sweep.may_live, record):
            await sweep.sweep(record, patience=SUPERVISOR_SECONDS)
            return None
        if method is Method.RECONNECT:
            # A page may show what is no longer so.
            verdict(record, SessionCommand.RECONNECT).require()
            await asyncio.to_thread(cluster.revive, config_from_json(record.config), record.state)
        if method is Method.DISCONNECT:
            return await client.end(record)
        return await client.arequest(record, method, patience=client.CHANGE_SECONDS)

    async def profile(self, session: str, seconds: int) -> View:
        """Trace the chips of `session`, also while its kernel is busy; return what they did.

        The terminal's command does it in a process of its own: it needs JAX, which this server never imports. It is
        interrupted when this is cancelled, which ends the trace.

        Raises:
          PathwaysError: The trace could not be taken or read.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "pathways_jupyter", "profile"),
            *("--session", session, "--seconds", str(seconds), "--json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "NO_COLOR": "1"},
            start_new_session=True,
        )
        # In a task of its own, which reads on when this is cancelled: the process never waits for a reader.
        reading = self.spawn(process.communicate())
        try:
            output, errors = await asyncio.shield(reading)
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            raise
        if not output:
            # It has crashed, or was killed.
            logger.error("the trace of session %s: %s", session, errors.decode(errors="replace"))
            raise PathwaysError("The trace could not be taken.", hint="The log of the Jupyter server says why.")
        result = json.loads(output)
        if "error" in result:
            raise error_from_json(result["error"])
        return render.view(summary.from_json(result))

    async def sweep(self, scope: Scope, *, dry_run: bool) -> list[str]:
        """Remove this user's stale proxies and dead sessions; return their names.

        Args:
          dry_run: Only return the names.

        Raises:
          PathwaysError: The cluster cannot be reached, or something could not be removed.
        """
        gone = await asyncio.to_thread(sweep.dead)
        for record in gone if not dry_run else ():
            await sweep.sweep(record, patience=SUPERVISOR_SECONDS)
        async with await scopes.client(scope) as kube:
            me = label_value(current_user())
            swept = await abandoned.sweep(kube, kube.namespace, dry_run=dry_run, user=me, reclaim=abandoned.EVERY)
        for each in swept:
            if each.error:
                raise PathwaysError(
                    f"{each.job} could not be removed: {each.error}",
                    hint="Try again later.",
                )
        removed = [record.id for record in gone]
        return [*removed, *(each.job for each in swept if each.session not in removed)]

    async def log(self, scope: Scope, pod: str, *, follow: bool) -> AsyncGenerator[str, None]:
        """Yield the lines of the log of a pod's first container.

        Raises:
          PathwaysError: There is no such pod, or its log cannot be read.
        """
        async with await scopes.client(scope) as kube:
            namespace = kube.namespace
            pod_object = await objects.find(kube, objects.PODS, pod, namespace=namespace)
            if pod_object is None:
                raise ClusterError(
                    f"Pod {pod} is gone, and its log with it.", hint="The events of its session say why it ended."
                )
            container = str(pod_object["spec"]["containers"][0]["name"])
            lines = pods.logs(kube, pod, namespace=namespace, container=container, follow=follow, tail=LOG_LINES)
            async with contextlib.aclosing(lines):
                async for line in lines:
                    yield line

    async def kernel_ended(self, kernel_id: str) -> None:
        """Sweep the sessions of a kernel that ended, if their supervisors have not cleaned up after a while."""
        await asyncio.sleep(SUPERVISOR_SECONDS)
        for record in await asyncio.to_thread(sweep.dead):
            if record.kernel_id == kernel_id:
                try:
                    await sweep.sweep(record)
                    logger.info("session %s: cleaned up after its kernel and its supervisor", record.id)
                except PathwaysError as error:
                    logger.warning("session %s: %s", record.id, error)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` as a background task; its exception is logged."""
        task = self._tasks.begin(work)
        task.add_done_callback(_log_failure)
        return task

    async def close(self) -> None:
        """Cancel all tasks and close all watches."""
        self.sessions.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*(watch.close() for watch in self._watches.values()))
        self._watches.clear()

    async def _keep(self, key: tuple[str, str, str], watch: ClusterWatch) -> None:
        """Sweep the cluster of `watch` until that has had no listeners for a while; then close it."""
        sweeping, alone = self.spawn(self._sweep_repeatedly(watch)), 0
        while alone < 2:
            await asyncio.sleep(LINGER_SECONDS / 2)
            alone = 0 if watch.has_listeners else alone + 1
        # First, so that the next page gets another one.
        self._watches.pop(key, None)
        await tasks.stop(sweeping)
        await watch.close()

    async def _sweep_repeatedly(self, watch: ClusterWatch) -> None:
        # The pages' first look comes first: the server answers the requests of one client in turn.
        await watch.until_drawn()
        while True:
            try:
                async with Client(watch.cluster) as kube:
                    namespace = watch.cluster.namespace
                    for each in await abandoned.sweep(kube, namespace, user=label_value(current_user())):
                        logger.info("%s", each)
            except PathwaysError as error:
                logger.info("could not sweep %s: %s", watch.cluster.name, error)
            except Exception:
                # A failed round must not end the periodic sweep.
                logger.exception("could not sweep %s", watch.cluster.name)
            await asyncio.sleep(SWEEP_SECONDS)


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s failed", task.get_name(), exc_info=error)


async def _prepare() -> None:
    choices = await asyncio.to_thread(contexts)
    if choices["contexts"] or choices["local"] or choices["in_cluster"]:
        await asyncio.to_thread(preload)


def contexts() -> dict[str, Any]:
    """Return what a user of this server can choose in the connect dialog; works without a kubeconfig."""
    profiles: list[str] = []
    names: list[str] = []
    problem, current = None, ""
    try:
        profiles = sorted(setting_sources.profiles())
        merged = kubeconfig.read(kubeconfig.paths())
        names, current = sorted(merged.contexts), merged.current
    except ConfigError as error:
        problem = error.to_json(Face.SIDEBAR)
    return {
        "contexts": names,
        "current": current,
        "local": scopes.embedded_cluster_runs(),
        "in_cluster": scopes.in_cluster(),
        "profiles": profiles,
        "problem": problem,
        "more": [
            {
                "option": spec.flag.lstrip("-"),
                "label": spec.label,
                "example": spec.example,
                "list": spec.kind == "list",
            }
            for spec in SETTINGS.values()
            if spec.label
        ],
    }
