"""A session whose arrays are saved."""

from __future__ import annotations

import uuid

import homes
import pytest

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.local import cluster as local
from pathways_jupyter.session.kernel import session as sessions

DEADLINE = 60.0
TYPE = "tpuv6e:2x2"


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """A session on two slices of a cluster of the test file's own."""
    name = f"s{uuid.uuid4().hex[:6]}"
    with homes.entered(tmp_path_factory.mktemp("home")):
        cluster = local.up({TYPE: 2}, name=name)
        config = ConnectConfig(instances={TYPE: 2}, kubeconfig=str(cluster.kubeconfig), wait=DEADLINE)
        with sessions.connect(config) as made:
            yield made
        local.down(name)
