"""Notices that the cloud is about to take away a node of a session's slices.

GKE writes them on the node: the taint of an impending termination and the label of a maintenance that goes on, when it
begins to end the pods; and the time of a scheduled maintenance, days before. Nodes belong to no namespace, so that an
account may not be allowed to watch them: then nothing is known beforehand, as without notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Collection

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ClusterError
from pathways_jupyter.base.events import EventKind
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import NODES, PODS, Object
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.service import names, untrusted
from pathways_jupyter.service.discovery import ServiceInfo
from pathways_jupyter.session.supervisor.session_log import SessionLog

TERMINATION_TAINT = "cloud.google.com/impending-node-termination"
MAINTENANCE_LABEL = "cloud.google.com/active-node-maintenance"
"""``ONGOING`` while the pods of the node are being ended."""
SCHEDULED_LABEL = "cloud.google.com/scheduled-maintenance-time"
"""The beginning of the next maintenance, in seconds since the epoch."""

_BEFORE_SECONDS = 300.0
"""Time left to save the arrays before a scheduled maintenance."""
_LOOK_SECONDS = 30.0

logger = logging.getLogger(__name__)


class NodeNotices:
    """Reports notices about the nodes of a session's slices, as long as its proxy lives.

    Args:
      client: The cluster's client; the caller closes it.
      session_log: Receives them.
      service: Whose workers run on the nodes.
    """

    def __init__(self, client: Client, session_log: SessionLog, service: ServiceInfo) -> None:
        self._client = client
        self._session_log = session_log
        self._service = service
        # By node: from when on it may be taken away.
        self._notices: dict[str, float] = {}
        self._changed = asyncio.Event()
        # Nodes with a notice that holds now; of these, those whose slices were taken before it.
        self._due: set[str] | None = None
        self._expected: dict[str, str] = {}

    async def follow(self) -> None:
        """Report notices until cancelled; return if nodes may not be watched."""
        try:
            async with tasks.group() as group:
                group.create_task(self._watch())
                await self._changed.wait()
                while True:
                    self._changed.clear()
                    await self._look()
                    # A time that was announced may have come.
                    await tasks.first_done(self._changed.wait(), seconds=_LOOK_SECONDS)
        except ClusterError as error:
            logger.info("that nodes are about to be taken away is not seen: %s", error)
        finally:
            self._session_log.expect_loss("")

    async def _watch(self) -> None:
        is_known = False
        # No informer: it would go on to ask where that is forbidden.
        async with contextlib.aclosing(watch(self._client, NODES, labels=names.ACCELERATOR_LABEL)) as changes:
            async for change in changes:
                is_new = change.type is ChangeType.SYNCED
                is_known = is_known or is_new
                if change.object:
                    name = change.object["metadata"]["name"]
                    begins = math.inf if change.type is ChangeType.DELETED else _begins(change.object)
                    is_new = self._notices.get(name, math.inf) != begins
                    self._notices[name] = begins
                if is_known and is_new:
                    self._changed.set()

    async def _look(self) -> None:
        now = self._client.now()
        due = {node for node, begins in self._notices.items() if begins <= now}
        # The pods are asked for only where a node has a notice, which is rare.
        if new := due - (self._due or set()):
            try:
                found = await self._slices_on(new)
            except ClusterError as error:
                logger.info("which slices run on %s is not known yet: %s", ", ".join(sorted(new)), error)
                return
            for node, number in found.items():
                message = f"Node {node} of slice {number} is about to be taken away."
                self._session_log.report(EventKind.WARNING, message, node=node)
                # Where the notice is older than the proxy, the slice was taken in spite of it.
                if self._due is not None:
                    self._expected[node] = message
        self._due = due
        self._expected = {node: message for node, message in self._expected.items() if node in due}
        self._session_log.expect_loss(next(iter(self._expected.values()), ""))

    async def _slices_on(self, nodes: Collection[str]) -> dict[str, str]:
        """Return those of `nodes` that run a worker of the session's slices, with the number of the slice."""
        own = {None if each.number is None else str(each.number) for each in self._session_log.record.slices}
        labels = f"{names.JOBSET_NAME_LABEL}={self._service.name}"
        pods = await objects.list_(self._client, PODS, namespace=self._service.namespace, labels=labels)
        found = {}
        for pod in pods.items:
            node, place = pod["spec"].get("nodeName", ""), untrusted.JobSetPosition.of(pod)
            if node not in nodes or place is None or place.replicated_job not in names.WORKER_JOBS:
                continue
            # The log of an older proxy does not name its slices: it may be any.
            if place.job_index in own or None in own:
                found[node] = place.job_index
        return found


def _begins(node: Object) -> float:
    """Return from when on a node may be taken away, as it is announced; infinity if nothing is."""
    labels, taints = node["metadata"].get("labels") or {}, node["spec"].get("taints") or ()
    if labels.get(MAINTENANCE_LABEL) == "ONGOING" or any(each.get("key") == TERMINATION_TAINT for each in taints):
        return 0.0
    scheduled = untrusted.number(labels.get(SCHEDULED_LABEL), untrusted.LATEST)
    return math.inf if scheduled is None else scheduled - _BEFORE_SECONDS
