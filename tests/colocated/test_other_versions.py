"""Hosts whose sidecar has other versions than the kernel: another service, made of another environment."""

from __future__ import annotations

import json
import subprocess
import sys

import cloudpickle
import jax
import pytest

import pathways_jupyter
from pathways_jupyter.colocated import cell_run, function, memory, results
from pathways_jupyter.colocated.channel import Answer
from pathways_jupyter.colocated.errors import CheckError, ColocatedError
from pathways_jupyter.colocated.host import Host
from pathways_jupyter.colocated.host_versions import here
from pathways_jupyter.local import cluster
from pathways_jupyter.service.images import sidecar_for

INSTANCES = {"tpuv6e:2x2": 2}
SERVICE = "pathways-cluster"
SIDECAR = "import sys; from pathways_jupyter.local.pathways import sidecar; sys.exit(sidecar.main([]))"
CLOUDPICKLE = "3.1.1" if here()["cloudpickle"] != "3.1.1" else "3.1.0"
JAX = "0.9.2"


@pytest.fixture(scope="module")
def local_cluster(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        # Short: the path of a unix socket has 108 characters at most.
        patch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path_factory.mktemp("rt")))
        yield cluster.up(INSTANCES, sidecar=True, fast_heal=True)
        cluster.down()


def installed(folder, *packages: str) -> str:
    """A folder with other versions of packages than this environment has."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip does not get {' '.join(packages)} within a minute.")
    if done.returncode:
        # pip's last line may be a notice about itself.
        reasons = [each for each in done.stderr.splitlines() if each.startswith("ERROR")]
        pytest.skip(f"pip cannot install {' '.join(packages)}: {' '.join(reasons) or done.stderr}")
    return str(folder)


def kubectl(local_cluster, *arguments: str, given: str = "") -> str:
    command = ["kubectl", "--kubeconfig", str(local_cluster.kubeconfig), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, input=given, timeout=60).stdout


def deploy(local_cluster, path: str) -> None:
    """Replaces the service by one whose sidecars find their packages in `path` first."""
    jobset = json.loads(kubectl(local_cluster, "get", "jobset", SERVICE, "-o", "json"))
    for job in jobset["spec"]["replicatedJobs"]:
        for sidecar in job["template"]["spec"]["template"]["spec"].get("initContainers", ()):
            sidecar["command"] = [sys.executable, "-c", SIDECAR]
            others = [each for each in sidecar["env"] if each["name"] != "PYTHONPATH"]
            sidecar["env"] = [*others, {"name": "PYTHONPATH", "value": path}]
    again = {
        "apiVersion": jobset["apiVersion"],
        "kind": "JobSet",
        "metadata": {key: jobset["metadata"][key] for key in ("name", "namespace", "labels")},
        "spec": jobset["spec"],
    }
    # Returns when its Jobs are gone too: while one is left, it may replace a worker that was deleted before it.
    kubectl(local_cluster, "delete", "jobset", SERVICE, "--cascade=foreground", "--timeout=60s")
    kubectl(local_cluster, "create", "-f", "-", given=json.dumps(again))


@pytest.fixture
def connected(local_cluster, request, tmp_path):
    """A connection to a service whose sidecars have the packages that the test asks for."""
    deploy(local_cluster, installed(tmp_path, *request.param))
    with pathways_jupyter.connect(local=True, tpu=INSTANCES) as session:
        yield session


@pytest.mark.thorough
@pytest.mark.parametrize("connected", [[f"cloudpickle=={CLOUDPICKLE}"]], indirect=True)
def test_versions_that_get_along_are_reported_once_component_by_component(connected) -> None:
    shown: list[str] = []
    for _ in range(2):
        result = cell_run.run_cell("import cloudpickle\ncloudpickle.__version__", warn=shown.append)
        assert result.values == dict.fromkeys(range(2), CLOUDPICKLE)
    cell_run.run_cell("1", once=True, warn=shown.append)
    assert shown == [f"Versions differ: cloudpickle {CLOUDPICKLE} on hosts 0, 1, {here()['cloudpickle']} here."]


@pytest.mark.soak
@pytest.mark.parametrize("connected", [[f"jax=={JAX}", f"jaxlib=={JAX}"]], indirect=True)
def test_a_jax_that_cannot_read_requests_is_reported_component_by_component_before_anything_runs(connected) -> None:
    message = (
        rf"jax {JAX} on hosts 0, 1, {here()['jax']} here; jaxlib {JAX} on hosts 0, 1, {here()['jaxlib']} here\."
        r" Nothing was run\."
    )
    with pytest.raises(CheckError, match=message) as caught:
        cell_run.run_cell("1")
    assert f"jax=={JAX}" in caught.value.hint
    # There is none to build on for every JAX.
    assert ("pathways-jupyter sidecar build" in caught.value.hint) is bool(sidecar_for(here()["jax"]))
    with pytest.raises(CheckError, match=message):
        function(lambda: 1)()
    with pytest.raises(CheckError, match=message):
        memory.who()


def answer(value: object, python: str) -> Answer:
    """A host's answer whose last expression has this value, pickled by this version of Python."""
    shown = {"written": ["pickle", 0, python, []]}
    transcript = {"items": [], "size": 0, "tail": ""}
    head = {"transcript": transcript, "displays": 1, "value": shown, "error": None, "boot": ""}
    leaves, tree = jax.tree_util.tree_flatten(value)
    return Answer(Host(0, 0, 0, (), ()), head, [cloudpickle.dumps((tree, leaves))])


def test_a_function_of_another_python_is_not_unpickled_here_even_from_a_trusted_host() -> None:
    with pytest.raises(ColocatedError, match=r"The value of host 0 holds functions or classes of Python 3\.8\.1"):
        results.read(answer(lambda: 1, "3.8.1"), unpickle=True).value  # noqa: B018
    assert results.read(answer({"a": 1}, "3.8.1"), unpickle=True).value == {"a": 1}
    assert results.read(answer(lambda: 1, here()["python"]), unpickle=True).value() == 1
