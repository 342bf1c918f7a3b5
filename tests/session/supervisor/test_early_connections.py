"""Connections that are opened while a supervisor stands by: to which cluster, for how long, and without credentials."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass
from pathlib import Path

import kubeconfigs
import pytest
from certificates import self_signed
from waits import wait_until

from benchmarks.link import Link
from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.objects import LEASES
from pathways_jupyter.session.kernel import spawn
from pathways_jupyter.session.supervisor import early_connections
from pathways_jupyter.session.supervisor.early_connections import EarlyConnections

CONNECTIONS = early_connections._CONNECTIONS
DEADLINE = 60.0


@pytest.fixture
async def link(cluster):
    with Link(Path(cluster.kubeconfig)) as made:
        yield made


@pytest.fixture
def kubeconfig(link, tmp_path, monkeypatch):
    """That of the link, which a connect without further words would use."""
    path = link.write(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@dataclass
class Plugin:
    """A credential plugin: a real program that notes each of its runs, and prints `status`."""

    directory: Path
    kubeconfig: Path

    def prints(self, **status: str) -> None:
        """Let it print this, and make it the credential of the kubeconfig's user."""
        program = self.directory / "plugin"
        printed = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        program.write_text(
            f"#!/bin/sh\necho run >> {self.directory / 'runs'}\ncat <<'END'\n{json.dumps(printed)}\nEND\n"
        )
        program.chmod(0o700)
        user = {"exec": {"apiVersion": printed["apiVersion"], "command": str(program), "interactiveMode": "Never"}}
        entry = auth.kubeconfigs.read((self.kubeconfig,)).context().cluster
        kubeconfigs.write(self.kubeconfig, dict(entry.fields), user)

    @property
    def runs(self) -> int:
        path = self.directory / "runs"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
async def plugin(kubeconfig, tmp_path):
    return Plugin(tmp_path, kubeconfig)


async def token_of(kubeconfig: Path) -> str:
    return (await auth.load(str(kubeconfig)).credentials.authorization()).removeprefix("Bearer ")


async def opened(link: Link) -> EarlyConnections:
    """Return early connections that have all been opened."""
    traffic = link.count()
    early = EarlyConnections()
    early.open()
    # A handshake and a request on each.
    await asyncio.to_thread(wait_until, lambda: len(traffic.exchanges) == 2 * CONNECTIONS)
    # Only then can each be used again: the client has read the answers.
    await asyncio.to_thread(wait_until, lambda: not early._client._in_use)
    return early


async def test_a_session_of_the_same_cluster_has_them(link, kubeconfig):
    early = await opened(link)
    traffic = link.count()
    async with early.client(auth.load()) as client:
        await asyncio.gather(*(objects.list_(client, LEASES) for _ in range(CONNECTIONS)))
        assert traffic.connections == 0
        # Of a later proxy of the session.
        async with early.client(auth.load()) as later:
            assert later is not client


def changed_token(content: dict) -> None:
    content["users"][0]["user"]["token"] = "another"


def changed_name(content: dict) -> None:
    content["clusters"][0]["cluster"]["tls-server-name"] = "localhost"


def changed_proxy(content: dict) -> None:
    content["clusters"][0]["cluster"]["proxy-url"] = "http://127.0.0.1:1"


@pytest.mark.parametrize("change", [changed_token, changed_name, changed_proxy])
async def test_they_are_closed_when_a_session_has_another_cluster_or_user(change, link, kubeconfig):
    early = await opened(link)
    content = json.loads(kubeconfig.read_text())
    change(content)
    kubeconfig.write_text(json.dumps(content))
    async with early.client(cluster := auth.load()) as client:
        assert client.cluster is cluster
        await asyncio.to_thread(wait_until, lambda: not link._sockets)


async def test_standing_by_asks_no_credential_plugin_and_ends_the_connections_with_it(link, plugin):
    plugin.prints(token="x")
    traffic = link.count()
    spawn.prepare()
    try:
        await asyncio.to_thread(wait_until, lambda: len(traffic.exchanges) == 2 * CONNECTIONS)
        assert plugin.runs == 0
    finally:
        spawn.discard()
    await asyncio.to_thread(wait_until, lambda: not link._sockets)
    assert plugin.runs == 0


async def test_a_token_of_a_plugin_is_asked_for_once_by_the_session(link, plugin):
    plugin.prints(token=await token_of(plugin.kubeconfig))
    early = await opened(link)
    assert plugin.runs == 0
    traffic = link.count()
    async with early.client(auth.load()) as client:
        await objects.list_(client, LEASES)
        assert (traffic.connections, plugin.runs) == (0, 1)


async def test_a_certificate_of_a_plugin_is_on_new_connections(link, plugin):
    certificate, key = self_signed("jane")
    token = await token_of(plugin.kubeconfig)
    plugin.prints(token=token, clientCertificateData=certificate, clientKeyData=key)
    early = await opened(link)
    traffic = link.count()
    async with early.client(auth.load()) as client:
        await objects.list_(client, LEASES)
        assert (traffic.connections, plugin.runs) == (1, 1)
        await asyncio.to_thread(wait_until, lambda: len(link._sockets) == 2)


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_connections_that_were_cut_meanwhile_cost_a_session_nothing(is_noticed, link, kubeconfig):
    early = await opened(link)
    body = lease(f"cut-{uuid.uuid4().hex[:8]}")
    # Without a turn of the event loop in between, the client's end does not know it yet.
    link.reset()
    if is_noticed:
        await asyncio.to_thread(wait_until, lambda: not link._sockets)
    async with early.client(auth.load()) as client:
        # Creating is not idempotent.
        made = await objects.create(client, LEASES, body)
        assert await objects.delete(client, LEASES, body["metadata"]["name"], namespace="default")
        assert made["metadata"]["uid"]


def lease(name: str) -> dict:
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"leaseDurationSeconds": 60},
    }


@pytest.mark.thorough
async def test_they_are_used_for_some_minutes_and_then_closed(link, kubeconfig, monkeypatch):
    monkeypatch.setattr(early_connections, "_REFRESH_SECONDS", 0.2)
    monkeypatch.setattr(early_connections, "_KEPT_SECONDS", 5.0)
    traffic = link.count()
    early = EarlyConnections()
    early.open()
    await asyncio.wait_for(early._task, DEADLINE)
    assert traffic.connections == CONNECTIONS
    # A handshake, a request, and at least one more on each.
    assert len(traffic.exchanges) >= 3 * CONNECTIONS
    await asyncio.to_thread(wait_until, lambda: not link._sockets)


async def test_a_machine_that_was_asleep_does_not_use_them(link, kubeconfig, monkeypatch):
    early = await opened(link)
    awake = early_connections.boot_seconds
    monkeypatch.setattr(early_connections, "boot_seconds", lambda: awake() + 61)
    async with early.client(cluster := auth.load()) as client:
        assert client.cluster is cluster


@pytest.mark.parametrize(
    "settings",
    [{"LOCAL": "1"}, {"CLUSTER": "c", "PROJECT": "p", "REGION": "r"}, {"KUBECONFIG": "missing"}, {"WAIT": "soon"}],
    ids=str,
)
async def test_nothing_is_opened_and_nothing_fails_for(settings, link, kubeconfig, monkeypatch):
    for name, value in settings.items():
        monkeypatch.setenv(f"PATHWAYS_JUPYTER_{name}", value)
    await none_are_opened(link)


async def test_nothing_is_opened_in_the_name_of_another_identity(link, kubeconfig):
    content = json.loads(kubeconfig.read_text())
    content["users"][0]["user"]["as"] = "jane"
    kubeconfig.write_text(json.dumps(content))
    await none_are_opened(link)


async def none_are_opened(link: Link) -> None:
    traffic = link.count()
    early = EarlyConnections()
    early.open()
    await asyncio.wait_for(early._task, DEADLINE)
    assert traffic.connections == 0


async def test_a_cluster_that_cannot_be_reached_is_tried_once(link, kubeconfig):
    link.cut()
    await none_are_opened(link)
