"""Jobs and notebooks that wait in a queue of Kueue's, on the part of it that the embedded cluster evaluates."""

import json
import os
import signal
import time

import pytest
import yaml
from asks import ask
from pathways_jobs import headless
from waits import wait_until

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import JOBS, LEASES
from pathways_jupyter.service import names, queues
from pathways_jupyter.service.session_figures import SessionFigures
from tests.conftest import Notebook

SUM = "import jax, jax.numpy as jnp; print(len(jax.devices()), float(jnp.ones(8).sum()))"


class Kueue:
    """Kueue as an administrator sets it up and sees it."""

    def __init__(self, kubeconfig):
        self.kubeconfig = kubeconfig

    def list(self, resource, **options):
        return ask(self.kubeconfig, objects.list_, resource, namespace="default", **options).items

    def queue(self, name, quota):
        """Make a queue with the flavor that the cluster has, in which higher priorities evict."""
        resources = [{"name": each, "nominalQuota": amount} for each, amount in quota.items()]
        group = {"coveredResources": list(quota), "flavors": [{"name": "any-node", "resources": resources}]}
        preemption = {"withinClusterQueue": "LowerPriority"}
        spec = {"resourceGroups": [group], "namespaceSelector": {}, "preemption": preemption}
        for kind, each in ((queues.CLUSTER_QUEUES, spec), (queues.QUEUES, {"clusterQueue": name})):
            body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": each}
            ask(self.kubeconfig, objects.create, kind, body, namespace="default")

    def workloads(self, queue):
        return [each for each in self.list(queues.WORKLOADS) if each["spec"]["queueName"] == queue]

    def jobs(self, queue):
        return self.list(JOBS, labels=f"{names.QUEUE_LABEL}={queue}")

    def figures(self):
        """Return the figures of all sessions, as the operator exports them."""
        found = (SessionFigures.of_lease(each, time.time()) for each in self.list(LEASES))
        return [each for each in found if each is not None]


@pytest.fixture(scope="module")
def kueue(cluster):
    return Kueue(cluster)


@pytest.fixture
def apply(machine):
    """Apply a job of one slice; the test's end deletes it."""
    applied = []

    def run(name, *options):
        (machine.directory / f"{name}.yaml").write_text(yaml.safe_dump(headless(name)))
        applied.append(name)
        done = machine.cli("job", "apply", f"{name}.yaml", "--local", *options)
        assert done.returncode == 0, done.stderr
        return done.stderr

    yield run
    for name in applied:
        machine.cli("job", "delete", name, "--yes", "--local")


def test_a_job_waits_in_its_queue_is_admitted_evicted_and_admitted_again(machine, kueue, apply):
    kueue.queue("narrow", {"google.com/tpu": 4, "cpu": 99, "memory": "1T"})

    def until(name, *words):
        shown = [""]

        def says():
            shown[0] = machine.cli("job", "show", name, "--local").stdout.splitlines()[0]
            return all(each in shown[0] for each in words)

        try:
            wait_until(says)
        except AssertionError:
            raise AssertionError(shown) from None

    assert "running" in apply("first", "--queue", "narrow", "--wait")
    apply("second", "--queue", "narrow", "--priority", "low")
    short = "insufficient unused quota for google.com/tpu in flavor any-node, 4 more needed"
    until("second", "suspended (Position 1 in queue narrow: couldn't assign flavors to pod set worker: ", short)
    machine.cli("job", "delete", "first", "--yes", "--local")
    until("second", "running (", "queue narrow")
    assert "running" in apply("third", "--queue", "narrow", "--priority", "high", "--wait")
    until("second", "Preempted by JobSet third, prioritization in the ClusterQueue; ", short)
    machine.cli("job", "delete", "third", "--yes", "--local")
    until("second", "running (", "queue narrow")
    assert machine.cli("job", "suspend", "second", "--local", "--yes").returncode == 0
    until("second", "suspended by a user")
    assert machine.cli("job", "resume", "second", "--local").returncode == 0
    until("second", "running (", "queue narrow")
    machine.cli("job", "delete", "second", "--yes", "--local")
    wait_until(lambda: not kueue.workloads("narrow"))


ONE_PROXY = {"cpu": 16, "memory": "100G"}
CONNECT = "%pathways connect --local --tpu tpuv6e:2x2=1 --queue sessions"


@pytest.fixture(scope="module")
def sessions(kueue):
    """A queue with room for one proxy."""
    kueue.queue("sessions", ONE_PROXY)


@pytest.fixture(scope="module")
def opened(machine):
    """Two notebooks with the extension, for all tests."""
    made = [with_extension(machine), with_extension(machine)]
    yield made
    for each in made:
        each.close()


def with_extension(machine):
    made = Notebook(machine)
    assert made.run("%load_ext pathways_jupyter").status == "ok"
    return made


@pytest.fixture
def notebooks(machine, kueue, sessions, opened):
    """These notebooks, without a session, which have shown nothing yet; a kernel that was killed is replaced."""
    for each in opened:
        each.seen.clear()
    yield list(opened)
    for index, each in enumerate(opened):
        if each.manager.is_alive():
            each.run("%pathways disconnect")
        else:
            each.close()
            opened[index] = with_extension(machine)
    wait_until(lambda: not kueue.jobs("sessions") and not kueue.workloads("sessions"))


@pytest.mark.thorough
def test_connecting_waits_in_the_queue_and_an_interrupt_leaves_nothing(kueue, notebooks):
    first, second = notebooks
    assert first.run(CONNECT).status == "ok"
    assert "Admitted by queue sessions." in first.run("%pathways events").text
    waiting = second.begin(CONNECT)
    words = "insufficient unused quota for cpu in flavor any-node, 16 more needed"
    assert f"Position 1 in queue sessions: couldn't assign flavors to pod set main: {words}" in second.wait_for(words)
    assert len(kueue.jobs("sessions")) == len(kueue.workloads("sessions")) == 2
    second.manager.interrupt_kernel()
    second.finish(waiting)
    wait_until(lambda: len(kueue.jobs("sessions")) == len(kueue.workloads("sessions")) == 1)
    # The first one's end makes room.
    waiting = second.begin(CONNECT)
    second.wait_for(words, since=len(second.seen))
    assert first.run("%pathways disconnect").status == "ok"
    assert second.finish(waiting).status == "ok"
    assert second.run(SUM).text.strip() == "4 8.0"
    assert second.run("%pathways disconnect").status == "ok"
    wait_until(lambda: not kueue.jobs("sessions") and not kueue.workloads("sessions"))


@pytest.mark.thorough
def test_a_kernel_that_is_killed_in_the_queue_leaves_nothing(kueue, notebooks):
    first, second = notebooks
    assert first.run(CONNECT).status == "ok"
    second.begin(CONNECT)
    second.wait_for("Position 1 in queue sessions")
    os.kill(second.manager.provisioner.pid, signal.SIGKILL)
    wait_until(lambda: len(kueue.jobs("sessions")) == len(kueue.workloads("sessions")) == 1)


@pytest.mark.thorough
def test_a_session_that_kueue_evicts_says_for_whom_and_comes_back_through_the_queue(kueue, notebooks):
    first, second = notebooks
    assert first.run(f"{CONNECT} --priority low").status == "ok"
    assert first.run(SUM).status == "ok"
    assert second.run(f"{CONNECT} --priority high").status == "ok"
    (job,) = [each for each in kueue.jobs("sessions") if not each["spec"]["suspend"]]
    first.wait_for(f"Preempted by Job {job['metadata']['name']}, prioritization in the ClusterQueue")
    waiting = first.begin("%pathways reconnect")
    first.wait_for("Position 1 in queue sessions: couldn't assign")
    assert second.run("%pathways disconnect").status == "ok"
    assert first.finish(waiting).status == "ok"
    assert first.run(SUM).text.strip() == "4 8.0"


def test_a_queue_or_a_priority_that_is_not_there_is_refused_before_anything_is_made(machine, kueue, notebooks):
    first, _ = notebooks
    shown = first.run(CONNECT.replace("sessions", "nowhere")).shown
    assert "There is no queue nowhere in namespace default" in shown
    assert "sessions" in shown
    assert "no WorkloadPriorityClass urgent" in first.run(f"{CONNECT} --priority urgent").shown
    assert not kueue.jobs("nowhere")


@pytest.mark.thorough
def test_a_session_waits_in_the_queue_only_as_long_as_it_said(machine, kueue, notebooks):
    first, second = notebooks
    assert first.run(CONNECT).status == "ok"
    shown = second.run(f"{CONNECT} --wait 5").shown
    assert "Kueue has not admitted the proxy within 5 s. Position 1 in queue sessions" in shown
    wait_until(lambda: len(kueue.jobs("sessions")) == 1)


@pytest.mark.thorough
def test_a_service_waits_for_quota_and_its_sessions_are_counted_for_its_queue(machine, kueue, open_notebook):
    kueue.queue("services", {"google.com/tpu": 4, "cpu": 99, "memory": "1T"})
    spare = machine.cli("local", "up", "--tpu", "tpuv6e:2x2=2", "--spare", "tpuv6e:2x2=2", "--json")
    assert spare.returncode == 0, spare.stderr
    deploy = ("service", "deploy", "--tpu", "tpuv6e:2x2", "--local", "--queue", "services")
    try:
        held = machine.cli(*deploy, "held")
        assert held.returncode == 0, held.stderr
        waits = machine.cli(*deploy, "late", "--timeout", "10")
        assert waits.returncode == 1
        assert "Service late is not ready after 10 s: Position 1 in queue services: couldn't assign" in waits.stderr
        open_notebook().connect("--local --service held --tpu tpuv6e:2x2=1")
        # What the operator exports is on the Lease from the first renewal on.
        wait_until(lambda: kueue.figures() != [])
        assert [each.queue for each in kueue.figures()] == ["services"]
        machine.cli("service", "delete", "held", "--yes", "--local")
        admitted = machine.cli("service", "wait", "late", "--local")
        assert admitted.returncode == 0, admitted.stderr
    finally:
        for name in ("held", "late"):
            machine.cli("service", "delete", name, "--yes", "--local")


def test_the_doctor_checks_queue_quota_and_that_kueue_handles_jobsets(machine, kueue):
    kueue.queue("checked", {"google.com/tpu": 4})
    found = {
        each["name"]: each
        for each in json.loads(machine.cli("doctor", "--local", "--queue", "checked", "--json").stdout)
    }
    assert found["queue"]["message"] == (
        "checked: 0 pending, 0 admitted; in ClusterQueue checked are used: google.com/tpu 0 of 4 (any-node)"
    )
    assert (found["kueue"]["level"], found["kueue"]["message"]) == (
        "ok",
        "whether Kueue runs may not be read; it handles JobSets",
    )
    missing = machine.cli("doctor", "--local", "--queue", "nowhere")
    assert (missing.returncode, "There is no queue nowhere" in missing.stdout) == (1, True)
