"""PathwaysJobs on the embedded cluster, with kubectl alone: from apply to their end."""

import copy
import json
import shutil
import subprocess
import time

import pytest
from pathways_jobs import headless, training
from upstream_jobs import COLOCATED_PYTHON

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

DEADLINE = 90
DEVICES = """
import jax, pathwaysutils
pathwaysutils.initialize()
devices = jax.devices()
print("devices", len(devices), "slices", sorted({device.slice_index for device in devices}), devices[0].platform)
"""


class Kubectl:
    def __init__(self, kubeconfig):
        self.kubeconfig = kubeconfig

    def __call__(self, *arguments, stdin="", check=True):
        ran = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments],
            input=stdin, capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        assert not check or ran.returncode == 0, ran.stderr
        return ran.stdout if check else ran.stdout + ran.stderr

    def apply(self, job):
        return self("apply", "-f", "-", stdin=json.dumps(job))

    def until(self, name, condition):
        return self("wait", "pathwaysjob", name, f"--for=condition={condition}", f"--timeout={DEADLINE}s")

    def log(self, name, container="main", index=0, role="pathways-head"):
        pod = self.pods(name, role)[index]["metadata"]["name"]
        return self("logs", pod, "-c", container)

    def pods(self, name, role="pathways-head"):
        selector = f"jobset.sigs.k8s.io/jobset-name={name},jobset.sigs.k8s.io/replicatedjob-name={role}"
        return json.loads(self("get", "pods", "-l", selector, "-o", "json"))["items"]

    def status(self, name):
        return json.loads(self("get", "pathwaysjob", name, "-o", "json"))["status"]


@pytest.fixture(scope="module")
def kubectl(cluster):
    return Kubectl(cluster)


@pytest.fixture
def job(kubectl):
    """Apply a job; at the end of the test it is deleted, and must leave nothing behind."""
    applied = []

    def apply(manifest):
        kubectl.apply(manifest)
        applied.append(manifest["metadata"]["name"])
        return applied[-1]

    yield apply
    for name in applied:
        kubectl("delete", "pathwaysjob", name, "--ignore-not-found")
        deadline = time.monotonic() + DEADLINE
        while left := kubectl("get", "jobsets,jobs,pods,services", "-o", "name").split():
            left = [each for each in left if f"/{name}-" in f"{each}-"]
            if not left:
                break
            assert time.monotonic() < deadline, left
            kubectl("wait", "--for=delete", left[0], f"--timeout={DEADLINE}s", check=False)


def python(*lines):
    return ["python", "-c", "\n".join(lines)]


def test_a_training_job_sees_its_devices_and_completes(kubectl, job):
    made = training("train", *python(DEVICES), slices=2)
    # As in Google's own sample; the nodes that are made for it have it.
    made["spec"]["workers"][0]["nodeSelector"] = {"cloud.google.com/reservation-name": "ours"}
    name = job(made)
    kubectl.until(name, "Completed")
    assert "devices 8 slices [0, 1] tpu" in kubectl.log(name)
    head, row = kubectl("get", "pathwaysjob", name).splitlines()
    assert head.split() == ["NAME", "TERMINALSTATE", "COMPLETED", "FAILED", "SUSPENDED", "AGE"]
    assert row.split()[:3] == ["train", "Completed", "True"]
    for worker in kubectl.pods(name, "worker"):
        kubectl("wait", "--for=delete", f"pod/{worker['metadata']['name']}", f"--timeout={DEADLINE}s", check=False)
    (pod,) = kubectl("get", "pods", "-l", "jobset.sigs.k8s.io/jobset-name=train", "--no-headers").splitlines()
    assert pod.split()[2] == "Completed", "the workers are gone, and the head's pod stays for its log"
    described = kubectl("describe", "pathwaysjob", name)
    assert all(reason in described for reason in ("CreatedJobSet", "Running", "Completed"))


def test_a_job_whose_program_fails_is_failed_with_the_reason(kubectl, job):
    name = job(training("failing", *python("raise SystemExit(3)")))
    kubectl.until(name, "Failed")
    status = kubectl.status(name)
    assert status["terminalState"] == "Failed"
    assert "failing-pathways-head-0 failed" in status["conditions"][-1]["message"]


def test_a_head_that_crashes_once_is_restarted_with_all_its_workers(kubectl, job, tmp_path):
    marker = tmp_path / "crashed"
    program = python(
        "import os, pathlib",
        f"marker = pathlib.Path({str(marker)!r})",
        "if not marker.exists():",
        "    marker.touch()",
        "    os.kill(os.getpid(), 9)",
        DEVICES,
    )
    name = job(training("crashing", *program, maxRestarts=1))
    kubectl.until(name, "Completed")
    assert kubectl.status(name)["restarts"] == 1
    assert "devices 4" in kubectl.log(name)


def test_a_worker_that_crashes_once_does_not_end_its_job(kubectl, job, tmp_path):
    marker = tmp_path / "go"
    waiting = python(
        "import pathlib, threading",
        "print('waiting', flush=True)",
        f"while not pathlib.Path({str(marker)!r}).exists():",
        "    threading.Event().wait(0.05)",
    )
    name = job(training("worn", *waiting))
    kubectl.until(name, "Running")
    (pod,) = kubectl.pods(name, "worker")
    kubectl("exec", pod["metadata"]["name"], "-c", "pathways-worker", "--", "/bin/sh", "-c", "kill -9 1", check=False)
    restarted = "jsonpath={.status.containerStatuses[0].restartCount}=1"
    kubectl("wait", f"pod/{pod['metadata']['name']}", f"--for={restarted}", f"--timeout={DEADLINE}s")
    marker.touch()
    kubectl.until(name, "Completed")


def test_a_slice_that_uses_up_its_restarts_fails_the_job(kubectl, job):
    made = training("hopeless", *python("import threading; threading.Event().wait()"))
    made["spec"]["workers"][0]["maxSliceRestarts"] = 0
    made["spec"]["controller"]["elasticSlices"] = 1
    name = job(made)
    kubectl.until(name, "Running")
    (pod,) = kubectl.pods(name, "worker")
    kubectl("exec", pod["metadata"]["name"], "-c", "pathways-worker", "--", "/bin/sh", "-c", "kill -9 1", check=False)
    kubectl.until(name, "Failed")
    message = kubectl.status(name)["conditions"][-1]["message"]
    assert "hopeless-worker-0" in message
    assert "backoff limit" in message


@pytest.mark.thorough
def test_a_job_can_be_suspended_and_resumed(kubectl, job):
    made = training("paused", *python(DEVICES))
    made["metadata"]["annotations"] = {"pathways-jupyter/start-suspended": "true"}
    name = job(made)
    kubectl.until(name, "Suspended")
    assert kubectl.pods(name) == []
    assert kubectl("get", "pathwaysjob", name, "--no-headers").split()[1] == "True", "the Suspended column"
    kubectl("patch", "jobset", name, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    kubectl.until(name, "Completed")
    assert "devices 4" in kubectl.log(name)


def test_a_headless_job_runs_until_it_is_deleted(kubectl, job):
    name = job(headless("idle"))
    kubectl.until(name, "Running")
    (pod,) = kubectl.pods(name)
    assert [each["name"] for each in pod["spec"]["containers"]] == ["pathways-rm", "pathways-proxy"]


COLOCATED_PROGRAM = """
import jax, numpy as np, pathwaysutils
from jax.experimental import colocated_python
pathwaysutils.initialize()

@colocated_python.colocated_python
def write(dummy):
    import os
    print("on", os.environ.get("HOSTNAME", ""))
    return dummy + 1

devices = jax.devices()
cpus = colocated_python.colocated_cpu_devices(devices[:1])
print("answer", int(write(jax.device_put(np.array(41), cpus[0]))))
"""


@pytest.mark.thorough
def test_googles_colocated_sample_runs_on_its_own_sidecar(kubectl, job):
    """It names a head that does not exist, in JAX_BACKEND_TARGET; its image is not here. The command is ours."""
    made = copy.deepcopy(COLOCATED_PYTHON)
    made["spec"]["workers"][0] |= {"type": "ct6e-standard-4t", "topology": "2x2"}
    (main,) = made["spec"]["controller"]["template"]["spec"]["containers"]
    main["command"] = python(COLOCATED_PROGRAM)
    name = job(made)
    kubectl.until(name, "Completed")
    assert "answer 42" in kubectl.log(name)


@pytest.mark.thorough
def test_a_users_init_container_ends_before_pathways_programs_start(kubectl, job):
    made = training("prepared", *python(DEVICES))
    data = {"name": "data", "image": "python:3.12", "command": python("print('prepared')")}
    made["spec"]["controller"]["template"]["spec"]["initContainers"] = [data]
    made["metadata"]["annotations"] = {"note": "mine"}
    name = job(made)
    kubectl.until(name, "Completed")
    (pod,) = kubectl.pods(name)
    states = {each["name"]: each["state"]["terminated"] for each in pod["status"]["initContainerStatuses"]}
    assert [*states] == ["data", "pathways-rm", "pathways-proxy"]
    assert states["data"]["finishedAt"] <= states["pathways-rm"]["startedAt"]
    assert pod["metadata"]["annotations"]["note"] == "mine"


@pytest.mark.thorough
def test_a_head_can_run_beside_its_workers(kubectl, job):
    made = training("beside", *python(DEVICES), slices=2)
    made["spec"]["controller"]["deploymentMode"] = "colocate_head_with_workers"
    name = job(made)
    kubectl.until(name, "Completed")
    assert "devices 8" in kubectl.log(name)
    (head,) = kubectl.pods(name)
    assert "-job-" in head["spec"]["nodeName"]
    assert head["spec"]["nodeName"].startswith("tpuv6e-2x2")


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_fifty_jobs_at_once_end_as_each_should(kubectl, job):
    """Every third fails; each has one JobSet, and none takes the state of another."""
    jobs = [
        training(f"many-{number}", *python(f"print({number})", f"raise SystemExit({int(number % 3 == 0)})"))
        for number in range(50)
    ]
    for made in jobs:
        job(made)
    for number in range(50):
        kubectl.until(f"many-{number}", "Completed" if number % 3 else "Failed")
        assert kubectl.log(f"many-{number}").split() == [str(number)]
    found = json.loads(kubectl("get", "jobsets", "-o", "json"))["items"]
    owners = [each["metadata"]["ownerReferences"][0]["name"] for each in found if "ownerReferences" in each["metadata"]]
    assert sorted(owners) == sorted(made["metadata"]["name"] for made in jobs)
