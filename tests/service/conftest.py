import asyncio
import json
from pathlib import Path

import pytest

from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.local.apiserver.app import ApiServer
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.kubelet import Kubelet
from pathways_jupyter.local.network import Network
from pathways_jupyter.local.recorder import Recorder
from pathways_jupyter.local.spawner import Spawner
from pathways_jupyter.service import jobset, names, proxy

DEADLINE = 60.0


class Bench:
    """A real API server over a real kubelet; no controllers, so that objects stay as tests make them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.network = Network(directory)
        self.cold, self.warm = Spawner(log=directory / "cold.log"), Spawner(log=directory / "warm.log")
        self.store = Store()
        self.kubelet = Kubelet(directory, network=self.network, cold=self.cold, warm=self.warm, secret="s3cret")
        self.server = ApiServer(self.store, self.kubelet, directory=directory)
        self._clients: list[Client] = []

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

    def kubeconfig(self, *, rules=None, name: str = "x", **cluster) -> str:
        path = self.directory / f"kubeconfig-{name}"
        entry = {"server": self.server.url, "certificate-authority": str(self.server.ca), **cluster}
        path.write_text(
            json.dumps(
                {
                    "current-context": name,
                    "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": entry}],
                    "users": [{"name": "u", "user": {"token": self.server.add_token(name, rules)}}],
                }
            )
        )
        return str(path)

    def client(self, **options) -> Client:
        client = Client(auth.load(self.kubeconfig(**options)))
        self._clients.append(client)
        return client

    def of(self, resource: objects.Resource):
        return self.store.resources.of_kind(resource.api_version, resource.kind)

    async def proxy(self, client: Client, session: str, user: str = "jane", **options) -> dict:
        """Creates the proxy Job of a session."""
        spec = proxy.ProxySpec(
            session=session,
            service=names.DEFAULT_SERVICE,
            address=jobset.address(names.DEFAULT_SERVICE),
            image="r/proxy_server:1",
            instances={"tpuv6e:2x2": 1},
            user=user,
            **options,
        )
        return await objects.create(client, objects.JOBS, proxy.job(spec))

    async def running(self, client: Client, manifest: dict, *command: str) -> dict:
        """Runs a command as a pod, and returns the pod once it has started."""
        body = {"apiVersion": "v1", "kind": "Pod", **manifest}
        (container,) = body["spec"]["containers"]
        container |= {"image": "python:3", "command": list(command)}
        body["spec"] |= {"nodeName": "n0", "restartPolicy": "Never"}
        name = (await objects.create(client, objects.PODS, body))["metadata"]["name"]
        watch = self.store.watch(self.of(objects.PODS))
        try:
            async with asyncio.timeout(DEADLINE):
                while True:
                    found = self.store.get(self.of(objects.PODS), "default", name)
                    if found["status"].get("phase") not in {None, "Pending"}:
                        return found
                    await watch.batch()
        finally:
            watch.close()


@pytest.fixture
async def bench(tmp_path):
    made = Bench(tmp_path)
    await made.start()
    yield made
    await made.stop()
