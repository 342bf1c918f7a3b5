from __future__ import annotations

import contextlib

import pytest

import pathways_jupyter
from pathways_jupyter.local import cluster

INSTANCES = {"tpuv6e:2x4": 2}
"""Two slices of two hosts with four chips each."""


@pytest.fixture(scope="session")
def in_runtime(tmp_path_factory):
    """Enters, for a while, the runtime directory of the cluster that these files share."""
    # Short: the path of a unix socket has 108 characters at most.
    runtime = tmp_path_factory.mktemp("rt")

    @contextlib.contextmanager
    def entered():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JUPYTER_RUNTIME_DIR", str(runtime))
            yield

    return entered


@pytest.fixture(scope="session")
def local_cluster(in_runtime):
    with in_runtime():
        made = cluster.up(INSTANCES, sidecar=True, fast_heal=True)
    yield made
    with in_runtime():
        cluster.down()


@pytest.fixture(scope="module")
def connection(local_cluster, in_runtime):
    # The connection of the file before may hold its slices for another moment.
    with in_runtime(), pathways_jupyter.connect(local=True, tpu=INSTANCES, wait=60) as session:
        yield session


@pytest.fixture
def mesh(connection):
    import jax
    import numpy as np

    return jax.sharding.Mesh(np.array(jax.devices()), ("x",))


@pytest.fixture
def cpu_mesh(mesh):
    from jax.experimental import colocated_python

    return colocated_python.colocated_cpu_devices(mesh)


@pytest.fixture
def fresh_names(connection):
    """No host has names of earlier cells."""
    from pathways_jupyter.colocated import memory

    memory.reset()


@pytest.fixture
def x(mesh):
    """Two numbers for each of the sixteen chips."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    return jax.device_put(np.arange(32, dtype=np.float32).reshape(16, 2), NamedSharding(mesh, PartitionSpec("x")))
