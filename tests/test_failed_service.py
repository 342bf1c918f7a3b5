"""A service whose JobSet has failed for good: every command reports that, and what to do."""

import json
import shutil
import subprocess

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
    """A machine with a cluster whose only service has failed, and the cluster's kubeconfig."""
    with machine.own_cluster("--tpu", "tpuv6e:2x2=1") as own:
        kubeconfig = own.cli("local", "kubeconfig").stdout.strip()
        patch = json.dumps({"status": {"terminalState": "Failed", "conditions": [FAILURE]}})
        words = ["patch", "jobset", "pathways-cluster", "--subresource=status", "--type=merge", "-p", patch]
        subprocess.run(["kubectl", "--kubeconfig", kubeconfig, *words], check=True, capture_output=True)
        yield own, kubeconfig


def test_the_clusters_status_says_so(failed):
    own, _ = failed
    status = own.cli("local", "status").stdout
    assert "Its service pathways-cluster has failed for good: job pathways-cluster-pathways-head-0 failed;" in status
    assert REMEDY in status
    assert list(json.loads(own.cli("local", "status", "--json").stdout)["failed"]) == ["pathways-cluster"]
    up = own.cli("local", "up", "--tpu", "tpuv6e:2x2=1")
    assert up.returncode == 1
    assert REMEDY in up.stderr


def test_the_doctor_says_so(failed):
    own, kubeconfig = failed
    doctor = own.cli("doctor", "--kubeconfig", kubeconfig)
    assert doctor.returncode == 1
    assert "Service pathways-cluster will not come back: its JobSet has failed for good (job" in doctor.stdout
    assert REMEDY in doctor.stdout


def test_a_connection_is_refused_at_once_and_does_not_advise_to_wait(failed):
    own, kubeconfig = failed
    done = own.python("-c", SCRIPT, kubeconfig)
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
