"""The cluster that a config or a session means."""

import os
import shutil
from pathlib import Path

import pytest

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ApiError, ConnectionLost
from pathways_jupyter.kube.client import Client
from pathways_jupyter.session import clusters


@pytest.fixture
def copied(cluster, tmp_path):
    """A copy of the embedded cluster's kubeconfig, as one makes it for kubectl."""
    return str(shutil.copy(cluster.kubeconfig, tmp_path / "config"))


def test_an_embedded_cluster_is_known_however_its_kubeconfig_is_named(cluster, copied, monkeypatch):
    bucket = clusters.bucket(ConnectConfig(kubeconfig=str(cluster.kubeconfig)))
    assert bucket.startswith("gs://")
    assert clusters.bucket(ConnectConfig(kubeconfig=copied)) == bucket
    for named in (str(cluster.kubeconfig), copied):
        monkeypatch.setenv("KUBECONFIG", named)
        assert clusters.bucket(ConnectConfig()) == bucket
        assert clusters.Embedded.of(ConnectConfig()).kubeconfig == cluster.kubeconfig


def test_another_cluster_is_no_embedded_one(cluster, copied, monkeypatch, tmp_path):
    other = tmp_path / "other"
    other.write_text("apiVersion: v1\nkind: Config\n", encoding="utf-8")
    assert clusters.Embedded.of(ConnectConfig(kubeconfig=str(other))) is None
    assert clusters.Embedded.of(ConnectConfig(kubeconfig=str(tmp_path / "missing"))) is None
    monkeypatch.setenv("KUBECONFIG", copied)
    assert clusters.Embedded.of(ConnectConfig(kubeconfig=str(other))) is None
    assert clusters.Embedded.of(ConnectConfig(cluster="theirs", project="p", region="r")) is None


def move(kubeconfig):
    path = Path(kubeconfig)
    path.write_text(path.read_text().replace("https://127.0.0.1", "https://localhost"))


async def test_a_cluster_is_loaded_again_where_it_has_moved_or_refuses(copied):
    where = ConnectConfig(kubeconfig=copied)
    async with Client(first := await clusters.resolve(where)) as client:
        reload = clusters.reloader(lambda: where, client)
        # At the same address, with the same credentials: nothing is gained.
        await reload(ConnectionLost("cut"))
        assert client.cluster is first
        await reload(ApiError("expired", status=401))
        assert client.cluster is not first
        move(copied)
        await reload(ConnectionLost("cut"))
        assert client.cluster.server.startswith("https://localhost")
        os.unlink(copied)
        await reload(ConnectionLost("cut"))
        assert client.cluster.server.startswith("https://localhost")
