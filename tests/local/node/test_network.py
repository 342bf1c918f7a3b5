from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path

import pytest

from pathways_jupyter.local.node.network import Network


@pytest.fixture
async def network(tmp_path: Path):
    network = Network(tmp_path)
    yield network
    network.close()
    assert not [root for root in network.roots if root.exists()]


async def test_two_clusters_never_share_an_address(network, tmp_path):
    (tmp_path / "other").mkdir()
    other = Network(tmp_path / "other")
    try:
        own, theirs = ({each.assign() for _ in range(300)} for each in (network, other))
        assert len(own) == len(theirs) == 300
        assert not own & theirs
    finally:
        other.close()


async def test_names_lead_to_the_sockets_of_their_pod_until_it_is_gone(network):
    name = "svc-head-0-0.svc"
    network.publish("old-pod-", "default", name)
    assert network.socket("default", f"{name}.default", 29001) == network.sockets("old-pod-") / "29001"
    network.publish("new-pod-", "default", name)
    network.forget("old-pod-")
    assert network.socket("default", name, 29001) == network.sockets("new-pod-") / "29001"
    network.forget("new-pod-")
    assert network.socket("default", name, 29001) is None


async def test_a_name_is_that_of_a_pod_in_its_namespace_alone(network):
    name = "svc-head-0-0.svc"
    network.publish("01234567", "default", name)
    network.publish("89abcdef", "team", name)
    ours, theirs = (network.sockets(uid) / "29001" for uid in ("01234567", "89abcdef"))
    found = [network.socket(namespace, name, 29001) for namespace in ("default", "team", "other")]
    assert found == [ours, theirs, None]
    for suffix in ("", ".svc", ".svc.cluster.local"):
        assert network.socket("default", f"{name}.team{suffix}", 29001) == theirs
    network.forget("89abcdef")
    assert [network.socket(namespace, name, 29001) for namespace in ("default", "team")] == [ours, None]


async def test_a_pod_whose_name_has_dots_takes_no_name_in_another_namespace(network):
    name = "svc-head-0-0.svc"
    network.publish("01234567", "team", name)
    network.publish("89abcdef", "default", f"{name}.team")
    assert network.socket("team", name, 29001) == network.sockets("01234567") / "29001"
    network.forget("89abcdef")
    assert network.socket("team", name, 29001) == network.sockets("01234567") / "29001"


async def test_a_unix_socket_is_dialled_before_the_address(network):
    directory = network.sockets("0123456789")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    address = network.assign()
    with pytest.raises(OSError, match="Connect call failed"):
        await network.dial("0123456789", address, 29000)

    async def serve(reader, writer):
        writer.write(b"socket")
        writer.close()

    async with await asyncio.start_unix_server(serve, directory / "29000"):
        reader, writer = await network.dial("0123456789", address, 29000)
        assert await reader.read() == b"socket"
        writer.close()
    network.forget("0123456789")
    assert not directory.exists()


async def test_a_port_of_a_pods_own_address_is_dialled(network):
    address = network.assign()
    with socket.create_server((address, 0)) as server:
        _, writer = await network.dial("0123456789", address, server.getsockname()[1])
        writer.close()
