"""Shows a call's lines while it runs, from the logs of the pods that it runs in.

Arrays come back when a call ends, and not before; but what a cell prints goes to its container's log as well, each line
marked with the call. Those lines are followed here, through the Kubernetes API. The result, which is complete, then
only adds what was not shown yet. A call that is over soon is not followed at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pathways_jupyter.colocated.host import Host
from pathways_jupyter.colocated.memory import MEMORY, Facts
from pathways_jupyter.colocated.remote.transcript import ERROR, NEWS
from pathways_jupyter.config import ConnectConfig
from pathways_jupyter.errors import PathwaysError
from pathways_jupyter.service import names

_AFTER_SECONDS = 0.5
_LOOK_BACK_SECONDS = 5
_END_SECONDS = 2.0
_NEWS_SECONDS = 1.0


class Follower:
    """Follows one call after the other.

    Args:
      tell: Called with ``stdout`` or ``stderr`` and a whole line, labelled by host, from another thread.
    """

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self.shown: dict[int, list[str]] = {}

    def start(self, call: str, to: Sequence[Host]) -> Follower:
        """Begins to follow `call`, if a session of this process tells where its pods are."""
        config = _config()
        if config is not None:
            facts = MEMORY.facts(to)
            self._thread = threading.Thread(
                target=self._run, args=(config, call, to, facts), name="colocated-live", daemon=True
            )
            self._thread.start()
        return self

    def close(self) -> None:
        """Ends the following; nothing is told afterwards."""
        self._stop.set()
        if self._loop is not None and self._work is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._work.cancel)
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
        self._tell = _nothing

    def _run(self, config: ConnectConfig, call: str, to: Sequence[Host], facts: Mapping[int, Facts]) -> None:
        if self._stop.wait(_AFTER_SECONDS):
            return

        async def work() -> None:
            self._loop = asyncio.get_running_loop()
            self._work = asyncio.current_task()
            if not self._stop.is_set():
                await self._follow(config, call, to, facts)

        # Without logs the lines come with the result; a log that cannot be read is no reason to disturb the cell.
        with contextlib.suppress(asyncio.CancelledError, PathwaysError):
            asyncio.run(work())

    async def _follow(self, config: ConnectConfig, call: str, to: Sequence[Host], facts: Mapping[int, Facts]) -> None:
        from pathways_jupyter.kube import auth
        from pathways_jupyter.kube.client import Client
        from pathways_jupyter.kube.objects import PODS, list_

        cluster = await asyncio.to_thread(
            auth.load,
            config.kubeconfig,
            config.context,
            cluster=config.cluster,
            project=config.project,
            region=config.region,
        )
        namespace = config.namespace or cluster.namespace
        async with Client(cluster) as client:
            pods = (await list_(client, PODS, namespace=namespace, labels=names.JOBSET_NAME_LABEL)).items
            async with asyncio.TaskGroup() as tasks:
                for host in to:
                    name = pod_of(facts[host.index], pods)
                    if name:
                        tasks.create_task(self._lines(client, namespace, name, call, host))

    async def _lines(self, client: Any, namespace: str, name: str, call: str, host: Host) -> None:
        from pathways_jupyter.kube import pods

        mark = f"[cell {call}]"
        with contextlib.suppress(PathwaysError):
            async with contextlib.aclosing(
                pods.logs(
                    client,
                    name,
                    namespace=namespace,
                    container=names.SIDECAR_CONTAINER,
                    follow=True,
                    since_seconds=_LOOK_BACK_SECONDS,
                )
            ) as lines:
                async for line in lines:
                    kind, mine, text = line.removeprefix(mark).partition(" ")
                    if not (line.startswith(mark) and mine and kind in {"", ERROR, NEWS, NEWS + ERROR}):
                        continue
                    labelled = f"[host {host.index}] {text}\n"
                    stream = "stderr" if kind.endswith(ERROR) else "stdout"
                    if kind.startswith(NEWS):
                        # At the end of a call the result says the same, and says it better.
                        asyncio.get_running_loop().call_later(_NEWS_SECONDS, self._tell, stream, labelled)
                        continue
                    self.shown.setdefault(host.index, []).append(text)
                    self._tell(stream, labelled)


def pod_of(facts: Facts, pods: Sequence[Mapping[str, Any]]) -> str:
    """The name of the pod that a host said it is; empty when none is.

    A pod with an address of its own knows that, or its name; under host networking it has its node's.
    """
    for pod in pods:
        status, spec = pod.get("status") or {}, pod.get("spec") or {}
        if not any(
            container.get("name") == names.SIDECAR_CONTAINER
            for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        ):
            continue
        if facts.pod_ip and facts.pod_ip == status.get("podIP"):
            return str(pod["metadata"]["name"])
        if facts.hostname in {pod["metadata"]["name"], spec.get("nodeName")}:
            return str(pod["metadata"]["name"])
    return ""


def _nothing(stream: str, line: str) -> None:
    return None


def _config() -> ConnectConfig | None:
    from pathways_jupyter.session.kernel.session import current

    session = current()
    return session.config if session is not None else None
