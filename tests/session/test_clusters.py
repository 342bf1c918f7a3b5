"""The cluster that a config or a session means."""

import shutil

import pytest

from pathways_jupyter.base.config import ConnectConfig
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
