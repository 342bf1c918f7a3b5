"""A service whose workers have no sidecar."""

from importlib.metadata import version

import jax
import pytest

import pathways_jupyter
from pathways_jupyter.colocated import cell_run, function
from pathways_jupyter.colocated.errors import CheckError
from pathways_jupyter.local import cluster
from pathways_jupyter.service.images import sidecar_for

pytestmark = pytest.mark.thorough

INSTANCES = {"tpuv6e:2x2": 2}


@pytest.fixture
def connection(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    cluster.up(INSTANCES, sidecar=False)
    with pathways_jupyter.connect(local=True, tpu=INSTANCES) as session:
        yield session
    cluster.down()


@pytest.mark.usefixtures("connection")
def test_nothing_runs_elsewhere_instead() -> None:
    with pytest.raises(CheckError, match="have no colocated Python sidecar"):
        cell_run.run_cell("raise SystemExit")
    with pytest.raises(CheckError, match="have no colocated Python sidecar") as caught:
        function(lambda: 1)()
    said = "service deploy --sidecar-image" if sidecar_for(version("jax")) else "No sidecar is released for JAX"
    assert said in caught.value.hint
    # The error does not hold what was sent, which a suspend would name as an array that cannot be kept.
    assert jax.live_arrays() == []
