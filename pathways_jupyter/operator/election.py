"""Leader election through a Lease: of several operators, one acts and the others wait.

A leader that cannot renew its Lease stops acting before another one may take it: it gives up after two thirds of the
Lease's duration. All times are the API server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Awaitable, Callable

from pathways_jupyter.errors import ApiError, ClusterError, ConfigError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import LEASES, Object
from pathways_jupyter.service import leases, names

LEASE = "pathways-jupyter-operator"
LEASE_SECONDS = 15.0

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

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run `lead` whenever this process is the leader, and cancel it when it no longer is; until cancelled."""
        while True:
            await self._acquire()
            self._report("leading")
            leading = asyncio.ensure_future(lead())
            renewing = asyncio.create_task(self._renew())
            try:
                await asyncio.wait({leading, renewing}, return_when=asyncio.FIRST_COMPLETED)
                if leading.done():
                    await leading
            finally:
                for task in (leading, renewing):
                    task.cancel()
                await asyncio.gather(leading, renewing, return_exceptions=True)
                # Also when cancelled: the next leader need not wait for the Lease to expire.
                await self._release()

    async def _acquire(self) -> None:
        while True:
            try:
                holder = await self._try()
                if holder == self._me:
                    return
                self._report(f"waiting: {holder} is the leader")
            except ApiError as error:
                # 409: another one was faster.
                if error.status != 409:
                    self._report(str(error))
            except ClusterError as error:
                self._report(str(error))
            await asyncio.sleep(self._seconds / _RENEWALS)

    async def _try(self) -> str:
        """Take the Lease if it is free; return its holder."""
        lease = await objects.find(self._client, LEASES, LEASE, namespace=self._namespace)
        if lease is None:
            await objects.create(self._client, LEASES, self._lease(), namespace=self._namespace)
            return self._me
        spec = lease.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        if holder not in {"", self._me} and not leases.is_stale(lease, self._client.now()):
            return holder
        fresh = self._lease()
        # With the version that was read, so that of two which see it expired only one gets it.
        fresh["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
        fresh["spec"]["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (holder != self._me)
        path = LEASES.item(self._namespace, LEASE)
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
                lease = await objects.find(self._client, LEASES, LEASE, namespace=self._namespace)
                if lease is not None and (lease.get("spec") or {}).get("holderIdentity") == self._me:
                    version = lease["metadata"]["resourceVersion"]
                    body = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}}
                    await objects.patch(self._client, LEASES, LEASE, body, namespace=self._namespace)

    def _lease(self) -> Object:
        now = leases.stamp(self._client.now())
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": LEASE,
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
