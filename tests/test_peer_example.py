"""The example of the Shared Pathways Service's own guide runs with its import and its call exchanged for ours."""

import ast
import dataclasses
from importlib.util import find_spec
from pathlib import Path

import fake_google
import pytest

from pathways_jupyter import isc_pathways

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
    with fake_google.serving(cluster, machine.directory, name) as environ:
        yield dataclasses.replace(machine, environ={**machine.environ, **environ})


@pytest.mark.thorough
def test_the_guides_example_runs_in_a_script(on_google):
    done = on_google.python("-c", EXAMPLE + SEE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == SEEN


def test_the_guides_example_runs_in_a_notebook(on_google, open_notebook):
    cell = open_notebook(on_google).run(EXAMPLE + SEE)
    assert cell.status == "ok", cell.shown
    assert [line for line in cell.text.splitlines() if line in SEEN] == SEEN


# What the peer's own example is started with; its flags stand for all of its keywords.
FLAGS = [
    "--cluster=my-cluster",
    "--project=my-project",
    "--region=region",
    "--pathways_service=pathways-cluster-pathways-head-0-0.pathways-cluster:29001",
    "--tpu_count=2",
    "--proxy_job_name=mine",
    "--proxy_options=use_insecure_credentials:true",
    "--collect_service_metrics",
]
NAME = "proxy_job_name is not used: the proxy's Job is named after its session."
METRICS = "collect_service_metrics is not used: nothing is written to Cloud Monitoring"
EMBEDDED = (
    "The embedded cluster is used, as PATHWAYS_JUPYTER_LOCAL or the profile says: cluster, project and region are"
)


def run_the_peers_script(machine, directory, change=str, bucket="--gcs_bucket=gs://user-bucket", **environ):
    """Run pathwaysutils' example with nothing but the package in its import changed.

    Args:
      change: What a newer release of pathwaysutils changes in its example.
    """
    package = "pathwaysutils.experimental.shared_pathways_service"
    (folder,) = find_spec(package).submodule_search_locations
    text = (Path(folder) / "run_connect_example.py").read_text()
    line = f"from {package} import isc_pathways\n"
    assert text.count(line) == 1
    script = directory / "run_connect_example.py"
    script.write_text(change(text.replace(line, "from pathways_jupyter import isc_pathways\n")))
    return machine.python(str(script), *FLAGS[:3], bucket, *FLAGS[3:], **environ)


def newest(text):
    """The call of the example after 0.1.13."""
    assert text.count("proxy_server_image=FLAGS.proxy_server_image,") == 1
    image = "FLAGS.proxy_server_image or isc_pathways.DEFAULT_PROXY_IMAGE"
    return text.replace("proxy_server_image=FLAGS.proxy_server_image,", f"proxy_server_image={image},")


def test_every_public_name_of_the_peers_module_is_here():
    (folder,) = find_spec("pathwaysutils.experimental.shared_pathways_service").submodule_search_locations
    found = ast.parse((Path(folder) / "isc_pathways.py").read_text()).body
    names = [each.name for each in found if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    names += [target.id for each in found if isinstance(each, ast.Assign) for target in each.targets]
    public = {"DEFAULT_PROXY_IMAGE", *(name for name in names if not name.startswith("_"))}
    assert public >= {"connect", "ProxyOptions"}
    assert not [name for name in public if not hasattr(isc_pathways, name)]
    assert isc_pathways.ProxyOptions.from_list(["sidecar:true"]).sidecar


def warned(done):
    """The warnings of a script, without the lines that show where."""
    return [line.partition("UserWarning: ")[2] for line in done.stderr.splitlines() if "UserWarning: " in line]


def test_the_peers_script_runs_with_its_import_changed(on_google, tmp_path):
    done = run_the_peers_script(on_google, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Original Matrix (on all 8 devices)" in done.stdout
    name, metrics = warned(done)
    assert name == NAME
    assert metrics.startswith(METRICS)
    # They point to the user's own line.
    assert all("run_connect_example.py" in line for line in done.stderr.splitlines() if "UserWarning" in line)


def test_the_peers_script_runs_on_the_embedded_cluster_too(machine, cluster, tmp_path):
    done = run_the_peers_script(machine, tmp_path, newest, "--gcs_bucket=user-bucket", PATHWAYS_JUPYTER_LOCAL="1")
    assert done.returncode == 0, done.stderr
    assert "Original Matrix (on all 8 devices)" in done.stdout
    assert [line for line in warned(done) if line.startswith(EMBEDDED)] == [f"{EMBEDDED} ignored."]
