"""Leader election: one of several operators acts, and none beside another controller of the same API.

A leader that cannot renew its Lease stops acting before another one may take it: it gives up after two thirds of the
Lease's duration. All times are the API server's.

Two controllers of the PathwaysJob API would both create JobSets and write statuses, so this one stands back while
another one runs. A rival is recognized by its pods: they have the labels that its published manifests give them, or an
image of its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from pathways_jupyter.base import tasks
from pathways_jupyter.base.errors import ApiError, ClusterError, ConfigError
from pathways_jupyter.base.text import stamp
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.kube.objects import LEASES, PODS, Object
from pathways_jupyter.kube.watch import Change, ChangeType
from pathways_jupyter.service import leases, names, untrusted
from pathways_jupyter.service.images import Image

LEASE_SECONDS = 15.0
LONGEST_LEASE_SECONDS = 3600.0

_RENEWALS = 3


def identity() -> str:
    """Return a name for this process: its pod's, so that a container restarted in the same pod leads again at once."""
    host = socket.gethostname()
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return os.environ.get("HOSTNAME") or host
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


class Election:
    """Takes part in the election of a leader.

    Args:
      namespace: Where the Lease is.
      seconds: How long a leader may be silent before another one takes over.
      say: Called with each change, in words.
    """

    def __init__(
        self, client: Client, namespace: str, *, me: str, say: Callable[[str], None], seconds: float = LEASE_SECONDS
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._me = me
        self._seconds = seconds
        self._say = say
        self._said = ""
        self._answered = float("-inf")

    @property
    def server_answers(self) -> bool:
        """True if the API server has answered lately: the Lease is read all the time."""
        return time.monotonic() - self._answered < 2 * self._seconds

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `lead` whenever this process is the leader, and cancel it when it no longer is; until cancelled."""
        while True:
            await self._acquire()
            self._report("leading")
            try:
                ended, _ = await tasks.first_done(lead(), self._renew())
                if ended is not None:
                    await ended
            finally:
                # Also when cancelled: the next leader need not wait for the Lease to expire.
                await self._release()

    async def _acquire(self) -> None:
        while True:
            try:
                holder = await self._try()
                if holder == self._me:
                    return
                self._report(f"waiting: {untrusted.text(holder)} is the leader")
            except ApiError as error:
                # 409: another one was faster.
                if error.status != 409:
                    self._report(str(error))
            except ClusterError as error:
                self._report(str(error))
            await asyncio.sleep(self._seconds / _RENEWALS)

    async def _try(self) -> str:
        """Take the Lease if it is free; return its holder."""
        lease = await objects.find(self._client, LEASES, names.OPERATOR_LEASE, namespace=self._namespace)
        self._answered = time.monotonic()
        if lease is None:
            await objects.create(self._client, LEASES, self._lease(), namespace=self._namespace)
            return self._me
        spec = lease.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        now = self._client.now()
        # Its author may have written any duration.
        expires = min(leases.end(lease, now), leases.renewed(lease, now) + LONGEST_LEASE_SECONDS)
        if holder not in {"", self._me} and now <= expires:
            return holder
        fresh = self._lease()
        # With the version that was read, so that of two which see it expired only one gets it.
        fresh["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
        fresh["spec"]["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (holder != self._me)
        path = LEASES.item(self._namespace, names.OPERATOR_LEASE)
        await self._client.request("PUT", path, body=fresh, repeat=False)
        return self._me

    async def _renew(self) -> None:
        """Renew the Lease until that fails for so long that another operator may soon take it."""
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            await asyncio.sleep(self._seconds / _RENEWALS)
            left = renewed + self._seconds * (_RENEWALS - 1) / _RENEWALS - loop.time()
            try:
                async with asyncio.timeout(max(left, 0.1)):
                    if await self._try() != self._me:
                        self._report("another operator has become the leader")
                        return
                renewed = loop.time()
            except (ClusterError, TimeoutError) as error:
                if loop.time() - renewed >= self._seconds * (_RENEWALS - 1) / _RENEWALS:
                    self._report(f"no longer leading: the lease could not be renewed ({error})")
                    return

    async def _release(self) -> None:
        with contextlib.suppress(ClusterError, ConfigError, TimeoutError):
            async with asyncio.timeout(2):
                lease = await objects.find(self._client, LEASES, names.OPERATOR_LEASE, namespace=self._namespace)
                if lease is not None and (lease.get("spec") or {}).get("holderIdentity") == self._me:
                    version = lease["metadata"]["resourceVersion"]
                    body = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}}
                    await objects.patch(self._client, LEASES, names.OPERATOR_LEASE, body, namespace=self._namespace)

    def _lease(self) -> Object:
        now = stamp(self._client.now(), micro=True)
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": names.OPERATOR_LEASE,
                "namespace": self._namespace,
                "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
            },
            "spec": {
                "holderIdentity": self._me,
                "leaseDurationSeconds": max(1, round(self._seconds)),
                "acquireTime": now,
                "renewTime": now,
            },
        }

    def _report(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._say(text)


CONTROLLERS = "control-plane=controller-manager"
"""Selector of the pods among which rivals are."""
_NAME = "pathways-job"
_IMAGES = ("pathwaysjob-controller", "pathways-job")
_OVER = {"Succeeded", "Failed"}


class Rivals:
    """The pods of rival controllers, followed by :meth:`follow`.

    Args:
      say: Called when they cannot be read, in words.

    Attributes:
      synced: Set once :attr:`present` is right, or there is no permission to know it.
      changed: Set whenever the first one comes or the last one goes.
    """

    def __init__(self, informer: Informer, *, say: Callable[[str], None]) -> None:
        self._informer = informer
        self._say = say
        self._pods: dict[str, str] = {}
        self.synced = asyncio.Event()
        self.changed = asyncio.Event()

    @property
    def present(self) -> str:
        """The place of one of them, ``namespace/pod``; empty when there is none."""
        return next(iter(self._pods.values()), "")

    async def follow(self) -> None:
        """Keep :attr:`present` current, until cancelled."""
        await self._informer.follow(PODS, self._take, labels=CONTROLLERS)

    def _take(self, change: Change) -> None:
        if change.type is ChangeType.SYNCED:
            self.synced.set()
        elif change.type is not ChangeType.LOST:
            self._take_pod(change.type, change.object)
        elif isinstance(change.error, ApiError) and change.error.status == 403:
            # Without the permission it can only hope that there is no other controller, and says so.
            self._say(f"cannot look for other controllers: {change.error}")
            self.synced.set()

    def _take_pod(self, kind: ChangeType, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        before = self.present
        if kind is ChangeType.DELETED or not is_rival(pod):
            self._pods.pop(metadata["uid"], None)
        else:
            self._pods[metadata["uid"]] = f"{metadata.get('namespace')}/{metadata['name']}"
        if bool(before) != bool(self.present):
            self.changed.set()


def is_rival(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod runs another controller of the API.

    Only one of a Deployment: users of any namespace may create Jobs, and label their pods as a controller's.
    """
    metadata = pod["metadata"]
    if (pod.get("status") or {}).get("phase") in _OVER or metadata.get("deletionTimestamp"):
        return False
    owners = metadata.get("ownerReferences") or ()
    if not any(each.get("controller") and each.get("kind") == "ReplicaSet" for each in owners):
        return False
    named = untrusted.label(pod, "app.kubernetes.io/name") == _NAME
    images = [str(each.get("image")) for each in (pod.get("spec") or {}).get("containers") or ()]
    return named or any(Image.parse(image).name in _IMAGES for image in images)
