"""A real API server with a real kubelet, but without controllers, so that objects stay as tests create them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Self

import kubeconfigs

from pathways_jupyter.base.text import stamp
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.local.apiserver.app import ApiServer
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.local.node.kubelet import Kubelet
from pathways_jupyter.local.node.network import Network
from pathways_jupyter.local.node.spawner import Spawner
from pathways_jupyter.service import names, proxy_job, service_jobset

DEADLINE = 60.0


class QuietCluster:
    """One cluster, in this process."""

    def __init__(self, directory: Path, **options) -> None:
        """See :class:`ApiServer` for `options`."""
        self.directory = directory
        self.network = Network(directory)
        self.cold, self.warm = Spawner(log=directory / "cold.log"), Spawner(log=directory / "warm.log")
        self.store = Store()
        self.kubelet = Kubelet(directory, network=self.network, cold=self.cold, warm=self.warm)
        self.server = ApiServer(self.store, self.kubelet, directory=directory, **options)
        self._clients: list[Client] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self.cold.start()
        self.kubelet.attach(self.store, Recorder(self.store))
        await self.server.start()

    async def stop(self) -> None:
        for client in self._clients:
            client.close()
        await self.server.stop()
        await asyncio.wait_for(self.kubelet.close(), DEADLINE)
        await asyncio.wait_for(self.cold.close(), DEADLINE)
        self.network.close()

    async def restart(self, between: Callable[[], None] = lambda: None) -> None:
        """Drop all connections, and start again on the same port with the same objects."""
        await self.server.stop()
        between()
        await self.server.start()

    def kubeconfig(self, *, rules=None, user: dict | None = None, cluster: dict | None = None, name: str = "x") -> str:
        """Write a kubeconfig for this server; `user` replaces the token."""
        token = {"token": self.server.users.add(name, rules)}
        entry = {"server": self.server.url, "certificate-authority": str(self.server.ca), **(cluster or {})}
        path = self.directory / f"kubeconfig-{name}"
        return kubeconfigs.write(path, entry, token if user is None else user, name=name)

    def client(self, *, patience: float = 15.0, unknown: float = 0.0, **options) -> Client:
        client = Client(auth.load(self.kubeconfig(**options)), patience=patience, unknown=unknown)
        self._clients.append(client)
        return client

    def of(self, resource: objects.Resource):
        """Return the server's type of a resource."""
        return self.store.resources.of_kind(resource.api_version, resource.kind)

    async def pod(self, client: Client, name: str, *command: str, **spec) -> dict:
        """Run a command in a pod, and return the pod once its container runs."""
        metadata = {"name": name, "labels": spec.pop("labels", {})}
        return await self.running(client, {"metadata": metadata}, *command, **spec)

    async def running(self, client: Client, manifest: dict, *command: str, **spec) -> dict:
        """Run a command in the container of `manifest`, and return the pod once it has started."""
        given = manifest.get("spec", {})
        (container,) = given.get("containers", [{"name": "main"}])
        container = {**container, "image": "python:3", "command": list(command)}
        fixed = {"containers": [container], "nodeName": "n0", "restartPolicy": "Never"}
        body = {"apiVersion": "v1", "kind": "Pod", **manifest, "spec": {**given, **fixed, **spec}}
        name = (await objects.create(client, objects.PODS, body, namespace="default"))["metadata"]["name"]
        return await self.until(client, name, lambda pod: pod and pod["status"].get("phase") not in {None, "Pending"})

    async def until(self, client: Client, name: str, condition, resource=objects.PODS):
        """Wait until a condition holds for an object (None while it does not exist)."""
        watch = self.store.watch(self.of(resource))
        found = await objects.find(client, resource, name, namespace="default")
        try:
            async with asyncio.timeout(DEADLINE):
                while not condition(found):
                    await watch.batch()
                    found = await objects.find(client, resource, name, namespace="default")
        finally:
            watch.close()
        return found

    async def proxy(self, client: Client, session: str, user: str = "jane", **options) -> dict:
        """Create the proxy Job of a session."""
        spec = proxy_job.ProxySpec(
            session=session,
            service=names.DEFAULT_SERVICE,
            address=service_jobset.address(names.DEFAULT_SERVICE),
            image="r/proxy_server:1",
            instances={"tpuv6e:2x2": 1},
            user=user,
            **options,
        )
        return await objects.create(client, objects.JOBS, proxy_job.job(spec))

    async def proxy_printing(self, client: Client, job: dict, line: str, *, name: str, seconds: float = 600) -> dict:
        """Run the pod of a proxy Job, which writes a line to its log, and ends after so many seconds."""
        owners = [objects.owner(job, controller=True)]
        metadata = {"name": name, "labels": job["metadata"]["labels"], "ownerReferences": owners}
        manifest = {"metadata": metadata, "spec": {"containers": [{"name": names.PROXY_CONTAINER}]}}
        program = f"import time; print({line!r}, flush=True); time.sleep({seconds})"
        return await self.running(client, manifest, "python", "-c", program)

    async def renewed_at(self, client: Client, job: dict, at: float) -> None:
        """Renew the Lease of a proxy Job as a session does whose clock says `at`."""
        lease = {
            "apiVersion": objects.LEASES.api_version,
            "kind": objects.LEASES.kind,
            "spec": {"renewTime": stamp(at, micro=True)},
        }
        await client.request(
            "PATCH",
            objects.LEASES.item("default", job["metadata"]["name"]),
            query={"fieldManager": "session", "force": "true"},
            body=lease,
            content_type="application/apply-patch+yaml",
        )
