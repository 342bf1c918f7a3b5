"""Follow the services and sessions of one namespace, or of all, for its metrics.

Every scrape would otherwise list all pods and Jobs of the cluster, of every replica of the operator.
"""

from __future__ import annotations

import asyncio
import functools

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ClusterError, PathwaysError
from pathways_jupyter.kube.informer import Informers
from pathways_jupyter.kube.objects import JOBS, JOBSETS, LEASES, PODS, Object, Resource
from pathways_jupyter.kube.watch import Change, ChangeType
from pathways_jupyter.service import discovery, leases, names
from pathways_jupyter.service.model import Service
from pathways_jupyter.service.namespacestate import NamespaceState
from pathways_jupyter.service.picture import picture

_KINDS = {JOBSETS: "", PODS: "", JOBS: "", LEASES: names.SESSIONS}
"""Kinds that are followed, with the labels that their objects must have. Other tools' proxies have none of ours."""
_SYNC_SECONDS = 10.0
"""Longest wait of a reader for the first lists."""


class ClusterState:
    """Services and sessions as :meth:`run` keeps them current.

    Args:
      namespace: Empty for all.

    Attributes:
      leases: Those of sessions, by namespace and name.
    """

    def __init__(self, informers: Informers, namespace: str) -> None:
        self._client = informers.client
        # Thousands of pods and Jobs, of which little is needed.
        self._informers = [
            informers.of(each, namespace=namespace, labels=labels, lean=each in {PODS, JOBS})
            for each, labels in _KINDS.items()
        ]
        self._known: dict[str, NamespaceState] = {}
        self.leases: dict[tuple[str, str], Object] = {}
        self._errors: dict[Resource, PathwaysError] = {}
        # Kinds of which everything is known, or an error.
        self._settled: dict[Resource, asyncio.Event] = {each: asyncio.Event() for each in _KINDS}

    async def run(self) -> None:
        """Follow all kinds until cancelled."""
        try:
            async with tasks.group() as group:
                for each in self._informers:
                    group.create_task(each.follow(functools.partial(self._take, each.resource)))
        finally:
            # However it ends: from now on, what is known is outdated.
            for resource in _KINDS:
                self._take(resource, Change(ChangeType.LOST, error=ClusterError("The cluster is no longer followed.")))

    async def check(self) -> None:
        """Wait until what is known is complete.

        Raises:
          PathwaysError: It is not.
        """
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                for settled in self._settled.values():
                    await settled.wait()
        except TimeoutError as error:
            raise ClusterError("The cluster's objects are still being listed.") from error
        if self._errors:
            raise next(iter(self._errors.values())).with_traceback(None)

    def services(self) -> list[Service]:
        """Return the services as they are now, without what only logs say: the operator may not read these."""
        silent = leases.reclaimable(self.leases.values(), self._client.now())
        return [
            picture(each, pods=state.pods, jobs=list(state.proxies()), reclaimable=silent)
            for state in self._known.values()
            for each in discovery.of_jobsets(list(state.objects[JOBSETS].values()))
        ]

    def _take(self, resource: Resource, change: Change) -> None:
        kind, item = change.type, change.object
        if kind is ChangeType.SYNCED:
            self._errors.pop(resource, None)
            self._settled[resource].set()
        elif change.error is not None:
            self._errors[resource] = change.error
            self._settled[resource].set()
        elif resource is LEASES and kind is ChangeType.DELETED:
            self.leases.pop(leases.place(item), None)
        elif resource is LEASES:
            self.leases[leases.place(item)] = item
        else:
            state = self._known.setdefault(str(item["metadata"].get("namespace") or ""), NamespaceState())
            (state.drop if kind is ChangeType.DELETED else state.put)(resource, item)
