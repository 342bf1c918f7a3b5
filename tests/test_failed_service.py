"""A service whose JobSet has failed for good: every command reports that, and what to do."""

import json
import shutil
import subprocess
import tempfile

import pytest

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

FAILURE = {
    "type": "Failed",
    "status": "True",
    "reason": "ReachedMaxRestarts",
    "message": "job pathways-cluster-pathways-head-0 failed; maximum number of restarts reached",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}
SCRIPT = """
import json, sys
import pathways_jupyter
from pathways_jupyter.base.errors import PathwaysError

for arguments in ({"kubeconfig": sys.argv[1], "wait": True}, {"local": True}):
    try:
        pathways_jupyter.connect(expected_tpu_instances={"tpuv6e:2x2": 1}, **arguments)
    except PathwaysError as error:
        print(json.dumps([type(error).__name__, str(error), error.hint]))
"""
REMEDY = "pathways-jupyter local down, then pathways-jupyter local up"


@pytest.fixture(scope="module")
def failed(machine):
    """A cluster whose only service has failed; the environment in which it is the local one, and its kubeconfig."""
    with tempfile.TemporaryDirectory(prefix="pj-") as home:
        own = {"JUPYTER_RUNTIME_DIR": home, "JUPYTER_CONFIG_DIR": home}
        up = machine.cli("local", "up", "--tpu", "tpuv6e:2x2=1", "--json", **own)
        assert up.returncode == 0, up.stderr
        kubeconfig = json.loads(up.stdout)["kubeconfig"]
        patch = json.dumps({"status": {"terminalState": "Failed", "conditions": [FAILURE]}})
        words = ["patch", "jobset", "pathways-cluster", "--subresource=status", "--type=merge", "-p", patch]
        subprocess.run(["kubectl", "--kubeconfig", kubeconfig, *words], check=True, capture_output=True)
        yield own, kubeconfig
        assert machine.cli("local", "down", **own).returncode == 0


def test_the_clusters_status_says_so(machine, failed):
    own, _ = failed
    status = machine.cli("local", "status", **own).stdout
    assert "Its service pathways-cluster has failed for good: job pathways-cluster-pathways-head-0 failed;" in status
    assert REMEDY in status
    assert list(json.loads(machine.cli("local", "status", "--json", **own).stdout)["failed"]) == ["pathways-cluster"]
    up = machine.cli("local", "up", "--tpu", "tpuv6e:2x2=1", **own)
    assert up.returncode == 1
    assert REMEDY in up.stderr


def test_the_doctor_says_so(machine, failed):
    own, kubeconfig = failed
    doctor = machine.cli("doctor", "--kubeconfig", kubeconfig, **own)
    assert doctor.returncode == 1
    assert "Service pathways-cluster will not come back: its JobSet has failed for good (job" in doctor.stdout
    assert REMEDY in doctor.stdout


def test_a_connection_is_refused_at_once_and_does_not_advise_to_wait(machine, failed):
    own, kubeconfig = failed
    done = machine.python("-c", SCRIPT, kubeconfig, **own)
    assert done.returncode == 0, done.stderr
    real, local = map(json.loads, done.stdout.splitlines())
    assert real[0] == "ServiceError"
    assert real[1].startswith("Service pathways-cluster will not come back: its JobSet has failed for good (job")
    assert local[:2] == [
        "LocalClusterError",
        f"Service pathways-cluster of the embedded cluster has failed for good: {FAILURE['message']}.",
    ]
    for _, message, hint in (real, local):
        assert REMEDY in hint
        assert "wait" not in f"{message} {hint}"
