"""Other controllers of the PathwaysJob API: while one runs, this one stands back.

Two controllers would both create JobSets and write statuses. A rival is recognized by its pods: they have the labels
that its published manifests give them, or an image of its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.kube.watch import ChangeType, watch
from pathways_jupyter.service.images import Image

_SELECTOR = "control-plane=controller-manager"
_NAME = "pathways-job"
_IMAGES = ("pathwaysjob-controller", "pathways-job")
_OVER = {"Succeeded", "Failed"}


class Rivals:
    """The pods of rival controllers, followed by :meth:`follow`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pods: dict[str, str] = {}
        self.synced = asyncio.Event()
        self.changed = asyncio.Event()

    @property
    def present(self) -> str:
        """The place of one of them, ``namespace/pod``; empty when there is none."""
        return next(iter(self._pods.values()), "")

    async def follow(self) -> None:
        """Keep :attr:`present` current, until cancelled.

        Raises:
          ApiError: Listing pods in all namespaces is forbidden.
          ClusterError: The server could not be reached at the start.
        """
        async for change in watch(self._client, PODS, labels=_SELECTOR):
            if change.type is ChangeType.SYNCED:
                self.synced.set()
            elif change.type is not ChangeType.LOST:
                self._take(change.type, change.object)

    def _take(self, kind: ChangeType, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        before = self.present
        if kind is ChangeType.DELETED or not is_rival(pod):
            self._pods.pop(metadata["uid"], None)
        else:
            self._pods[metadata["uid"]] = f"{metadata.get('namespace')}/{metadata['name']}"
        if bool(before) != bool(self.present):
            self.changed.set()


def is_rival(pod: Mapping[str, Any]) -> bool:
    """Whether a pod runs another controller of the API."""
    metadata = pod["metadata"]
    if (pod.get("status") or {}).get("phase") in _OVER or metadata.get("deletionTimestamp"):
        return False
    named = (metadata.get("labels") or {}).get("app.kubernetes.io/name") == _NAME
    images = [str(each.get("image")) for each in (pod.get("spec") or {}).get("containers") or ()]
    return named or any(Image.parse(image).name in _IMAGES for image in images)
