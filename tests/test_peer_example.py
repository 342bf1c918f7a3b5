"""The example of the Shared Pathways Service's own guide runs with its import and its call exchanged for ours."""

import dataclasses
import subprocess
import sys

import played_google
import pytest

EXAMPLE = """
import pathways_jupyter

with pathways_jupyter.connect(
    cluster="my-cluster",
    project="my-project",
    region="region",
    gcs_bucket="gs://user-bucket",
    pathways_service="pathways-cluster-pathways-head-0-0.pathways-cluster:29001",
    expected_tpu_instances={"tpuv6e:2x2": 2},
) as tm:
  import jax.numpy as jnp
  import pathwaysutils
  import pprint

  pathwaysutils.initialize()
  orig_matrix = jnp.zeros(5)
  ...
"""
SEE = """
  import jax
  pprint.pprint((len(jax.devices()), orig_matrix.devices() <= set(jax.devices()), float((orig_matrix + 1).sum())))
print(jax.devices()[0].platform, jax.config.jax_enable_compilation_cache)
"""
SEEN = ["(8, True, 5.0)", "cpu True"]


@pytest.fixture(scope="module")
def on_google(machine, cluster):
    """The test's machine without a kubeconfig, but with Google credentials that lead to the embedded cluster."""
    name = "projects/my-project/locations/region/clusters/my-cluster"
    with played_google.serving(cluster, machine.directory, name) as environ:
        yield dataclasses.replace(machine, environ={**machine.environ, **environ})


def test_the_guides_example_runs_in_a_script(on_google):
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLE + SEE],
        env=on_google.environ,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == SEEN


def test_the_guides_example_runs_in_a_notebook(on_google, open_notebook):
    cell = open_notebook(on_google).run(EXAMPLE + SEE)
    assert cell.status == "ok", cell.shown
    assert [line for line in cell.text.splitlines() if line in SEEN] == SEEN
