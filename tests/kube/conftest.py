import asyncio
import datetime
import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.local.apiserver.app import ApiServer
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.kubelet import Kubelet
from pathways_jupyter.local.network import Network
from pathways_jupyter.local.recorder import Recorder
from pathways_jupyter.local.spawner import Spawner

DEADLINE = 60.0


class Bench:
    """A real API server over a real kubelet; no controllers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.network = Network(directory)
        self.cold, self.warm = Spawner(log=directory / "cold.log"), Spawner(log=directory / "warm.log")
        self.store = Store(directory / "store")
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

    async def restart(self, between: Callable[[], None] = lambda: None) -> None:
        """Drops every connection, and comes back on the same port with the same objects."""
        await self.server.stop()
        between()
        await self.server.start()

    def kubeconfig(self, *, rules=None, user: dict | None = None, cluster: dict | None = None, name: str = "x") -> str:
        """A kubeconfig for this server; `user` replaces the token."""
        path = self.directory / f"kubeconfig-{name}"
        token = {"token": self.server.add_token(name, rules)}
        entry = {"server": self.server.url, "certificate-authority": str(self.server.ca), **(cluster or {})}
        path.write_text(
            json.dumps(
                {
                    "current-context": name,
                    "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": entry}],
                    "users": [{"name": "u", "user": token if user is None else user}],
                }
            )
        )
        return str(path)

    def client(self, *, patience: float = 15.0, **options) -> Client:
        client = Client(auth.load(self.kubeconfig(**options)), patience=patience)
        self._clients.append(client)
        return client

    async def pod(self, client: Client, name: str, *command: str, **spec) -> dict:
        """Runs a command in a pod, and returns the pod once its container runs."""
        container = {"name": "main", "image": "python:3", "command": list(command)}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": spec.pop("labels", {})},
            "spec": {"containers": [container], "nodeName": "n0", "restartPolicy": "Never", **spec},
        }
        await objects.create(client, objects.PODS, body)
        return await self.until(client, name, lambda pod: pod and pod["status"].get("phase") not in {None, "Pending"})

    async def until(self, client: Client, name: str, condition, resource=objects.PODS):
        """Waits until an object (None while there is none) fulfils a condition."""
        watch = self.store.watch(self.store.resources.of_kind(resource.api_version, resource.kind))
        found = await objects.find(client, resource, name, namespace="default")
        try:
            async with asyncio.timeout(DEADLINE):
                while not condition(found):
                    await watch.batch()
                    found = await objects.find(client, resource, name, namespace="default")
        finally:
            watch.close()
        return found


@pytest.fixture
def bench_type():
    """For tests that bring an event loop of their own."""
    return Bench


@pytest.fixture
async def bench(tmp_path):
    made = Bench(tmp_path)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def unused_port():
    """A loopback port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]


@pytest.fixture(scope="session")
def self_signed():
    """A certificate that signs itself, as PEM text."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
