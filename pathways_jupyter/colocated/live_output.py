"""Show a call's output while it runs, from the logs of the pods that it runs in.

Results only come back when a call ends, but what a cell prints is also written to its container's log, each line marked
with the call's id. This module follows those logs through the Kubernetes API. The result contains all of the output, so
at the end only the lines that were not shown yet are added. A short call is not followed at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.colocated.host import Host
from pathways_jupyter.colocated.memory import MEMORY, Facts
from pathways_jupyter.colocated.remote.transcript import ERROR, NEWS
from pathways_jupyter.service import names

if TYPE_CHECKING:
    from pathways_jupyter.session.registry import SessionRecord

_AFTER_SECONDS = 0.5
"""Age of a call at which its logs are opened: most calls have ended by then and need no requests."""
_LOOK_BACK_SECONDS = 5
"""Time before the call from which the logs are read, since the node's clock may differ a little."""
_END_SECONDS = 2.0
"""Longest wait for the follower's thread when the call has ended."""
_NEWS_SECONDS = 1.0
"""Delay before a line of news is shown: if the call ends within it, the result says the same."""

logger = logging.getLogger(__name__)


class LogFollower:
    """Follow the logs of one call, in a thread of its own, because the caller's thread waits for the call's result.

    Args:
      show: Called with ``stdout`` or ``stderr`` and a whole line, labelled by host, from that thread.

    Attributes:
      shown: The lines shown so far, by host index; complete after :meth:`close`.
    """

    def __init__(self, show: Callable[[str, str], None]) -> None:
        self._show = show
        self._began = 0.0
        self._following: tasks.Call | None = None
        self.shown: dict[int, list[str]] = {}

    def start(self, call: str, to: Sequence[Host]) -> LogFollower:
        """Start following `call`; no-op without a session in this process, as its cluster is unknown then."""
        from pathways_jupyter.session.kernel.session import current

        session = current()
        self._began = time.monotonic()
        if session is not None:
            self._following = tasks.Call(self._follow(session.record, call, to, MEMORY.facts(to)))
            self._following.start()
        return self

    def close(self) -> None:
        """Stop following; nothing is shown afterwards."""
        if self._following is not None:
            self._following.cancel()
            self._following.wait_for_end(_END_SECONDS)
            if isinstance(error := self._following.error, Exception) and not isinstance(error, PathwaysError):
                logger.warning("the logs of the call were not followed", exc_info=error)
        # If the thread is stuck in a slow credential plugin, its late lines must not appear after the result.
        self._show = lambda stream, line: None

    async def _follow(self, record: SessionRecord, call: str, to: Sequence[Host], facts: Mapping[int, Facts]) -> None:
        from pathways_jupyter.kube.client import Client
        from pathways_jupyter.kube.objects import PODS, list_
        from pathways_jupyter.session import clusters

        await asyncio.sleep(_AFTER_SECONDS)
        async with Client(await clusters.resolve(record)) as client:
            pods = (await list_(client, PODS, namespace=record.namespace, labels=names.JOBSET_NAME_LABEL)).items
            async with asyncio.TaskGroup() as reading:
                for host in to:
                    if name := pod_of(facts[host.index], pods):
                        reading.create_task(self._lines(client, record.namespace, name, call, host))

    async def _lines(self, client: Any, namespace: str, name: str, call: str, host: Host) -> None:
        """Show the call's lines in one pod's log."""
        from pathways_jupyter.kube import pods

        mark, container = f"[cell {call}]", names.SIDECAR_CONTAINER
        # On a slow machine, or over a slow connection, this runs long after the call began.
        since = math.ceil(time.monotonic() - self._began) + _LOOK_BACK_SECONDS
        log = pods.logs(client, name, namespace=namespace, container=container, follow=True, since_seconds=since)
        with contextlib.suppress(PathwaysError):
            async with contextlib.aclosing(log) as lines:
                async for line in lines:
                    kind, mine, text = line.removeprefix(mark).partition(" ")
                    if not (line.startswith(mark) and mine and kind in {"", ERROR, NEWS, NEWS + ERROR}):
                        continue
                    labelled = f"[host {host.index}] {text}\n"
                    stream = "stderr" if kind.endswith(ERROR) else "stdout"
                    if kind.startswith(NEWS):
                        # When a call ends, its result says the same in a better form, and this loop drops the timer.
                        asyncio.get_running_loop().call_later(_NEWS_SECONDS, self._show, stream, labelled)
                        continue
                    self.shown.setdefault(host.index, []).append(text)
                    self._show(stream, labelled)


def pod_of(facts: Facts, pods: Sequence[Mapping[str, Any]]) -> str:
    """Return the name of the pod that matches a host's own description; empty if none does.

    Matched by the pod's address or its name; under host networking by the name of its node.
    """
    for pod in pods:
        status, spec = pod.get("status") or {}, pod.get("spec") or {}
        containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        if all(container.get("name") != names.SIDECAR_CONTAINER for container in containers):
            continue
        same_address = facts.pod_ip and facts.pod_ip == status.get("podIP")
        if same_address or facts.hostname in {pod["metadata"]["name"], spec.get("nodeName")}:
            return str(pod["metadata"]["name"])
    return ""
