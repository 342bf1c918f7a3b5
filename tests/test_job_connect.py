"""A notebook that is attached to a headless job: it uses the job's slices, and never ends the job."""

import contextlib
import json
import os
import re
import signal
import sys

import pytest
from asks import ask
from pathways_jobs import headless, training
from waits import wait_until

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.setting_sources import resolve
from pathways_jupyter.service import headless as service_headless
from pathways_jupyter.service import jobs
from pathways_jupyter.service.pathwaysjob import submission

JOB = "attachable"
SUM = "import jax, jax.numpy as jnp; print(len(jax.devices()), jax.devices()[0].platform, float(jnp.ones(8).sum()))"
CONNECT = f"%pathways connect --job {JOB} --local"


class Cluster:
    """Changes of the cluster's jobs by other users meanwhile."""

    def __init__(self, kubeconfig):
        self.kubeconfig = kubeconfig

    def _ask(self, question, *arguments):
        return ask(self.kubeconfig, question, *arguments, namespace="default")

    @contextlib.contextmanager
    def job(self, manifest):
        self._ask(submission.apply, manifest)
        try:
            yield manifest["metadata"]["name"]
        finally:
            self.delete(manifest["metadata"]["name"])

    def delete(self, name):
        self._ask(jobs.delete, name)

    def suspend(self, name):
        self._ask(jobs.suspend, name)

    def resume_and_find(self, name):
        """Look for the job's proxy as soon as the resume is answered, before the controller has seen it."""

        async def both(client, *, namespace):
            await jobs.suspend(client, name, namespace=namespace, suspended=False)
            return await service_headless.find(
                client, name, namespace=namespace, seconds=60, progress=lambda _words: None
            )

        return self._ask(both)

    def state(self, name):
        return self._ask(jobs.find, name).state


def never_starts(name):
    """A job whose workers fit no node."""
    made = headless(name)
    made["spec"]["workers"][0]["nodeSelector"] = {"no-node": "has-this"}
    return made


@pytest.fixture(scope="module")
def people(cluster):
    return Cluster(cluster)


@pytest.fixture(scope="module")
def job(people):
    """A headless job of two slices, until the end of this file."""
    with people.job(headless(JOB, slices=2)) as name:
        yield name


@pytest.fixture(scope="module")
def notebook(shared_notebook):
    assert shared_notebook.run("%load_ext pathways_jupyter").status == "ok"
    return shared_notebook


def test_two_notebooks_use_the_slices_of_a_job_and_leave_it_running_however_they_end(
    machine, people, job, notebook, open_notebook
):
    # It may still be starting.
    attached = notebook.run(CONNECT)
    assert attached.status == "ok", attached.shown
    assert f"attached to  job {JOB}, which stays when this session ends" in attached.text
    assert notebook.run(SUM).text.strip() == "8 tpu 8.0"
    (record,) = json.loads(machine.cli("sessions", "--json").stdout)
    assert (record["pathways_job"], record["instances"], record["job"]) == (JOB, {"tpuv6e:2x2": 2}, "")
    slices = notebook.run("%pathways slices").text
    assert f"{JOB}: 2 slices of tpuv6e:2x2, 0 free" in slices
    assert slices.count(f"job {JOB}") == 2
    assert "Pathways Server serving" in notebook.run("%pathways logs").text
    cell = notebook.run("%%colocated\n1").shown
    assert f"The workers of job {JOB} have no colocated Python sidecar" in cell
    assert "service deploy" not in cell

    other = open_notebook()
    ran = other.run(f"import pathways_jupyter\nprint(pathways_jupyter.connect(local=True, job={JOB!r}))\n{SUM}")
    assert ran.status == "ok", ran.shown
    assert f"connected, job {JOB}>" in ran.text
    assert "8 tpu 8.0" in ran.text
    # Each client has arrays of its own, and one that is killed takes nothing from the other.
    assert notebook.run("kept = jnp.arange(4.0)").status == "ok"
    for command in ("delete", "suspend"):
        asking = notebook.begin(f"%pathways job {command} {JOB}")
        asked = notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"]
        assert re.search(rf"the arrays are lost of 2 attached sessions: .*{record['id']}", asked), asked
        notebook.client.input("n")
        assert notebook.finish(asking).status == "ok"
    os.kill(other.manager.provisioner.pid, signal.SIGKILL)
    assert notebook.run("print(float(kept.sum()))").text.strip() == "6.0"
    suspended = notebook.run("%pathways suspend").text
    assert "Suspended: 1 array (16 bytes) saved, the job keeps its slices." in suspended
    assert "slices are free" not in notebook.run("%pathways status").text
    over = notebook.run("%pathways disconnect").text
    assert "is over" in over
    assert f"The arrays stay in the save suspended-{record['id']}: %pathways load" in over
    assert machine.cli("saved", "delete", f"suspended-{record['id']}", "--local", "--yes").returncode == 0
    assert notebook.run("print(jax.devices()[0].platform)").text.strip() == "cpu"
    assert people.state(JOB) == "Running"


@pytest.mark.thorough
def test_what_is_done_with_an_attached_session_is_done_with_its_job(machine, people, notebook, tmp_path):
    with people.job(headless("mine")):
        assert notebook.run("%pathways connect --job mine --local").status == "ok"
        (record,) = json.loads(machine.cli("sessions", "--json").stdout)
        sent = ("--dir", str(tmp_path))
        hosts = machine.cli("multihost", "run", "--session", record["id"], *sent, "--", "hostname")
        assert "mine-worker-0-0" in hosts.stdout, hosts.stderr
        # Its slices are those that it had: there is nothing to ask.
        assert notebook.run("import jax, jax.numpy as jnp; x = jnp.arange(4.0)").status == "ok"
        for resume in ("%pathways resume", "import pathways_jupyter; pathways_jupyter.current_session().resume()"):
            assert "the job keeps its slices" in notebook.run("%pathways suspend").text
            resumed = notebook.run(resume)
            assert resumed.status == "ok", resumed.shown
            assert notebook.run("print(float(x.sum()))").text.strip() == "6.0"
        hit = machine.cli("elastic", "inject", "slice-down", "0", "--session", record["id"], "--json")
        assert hit.returncode == 0, hit.stderr
        # And no worker of the service, which may be another user's.
        assert [each.startswith("mine-worker-0-0") for each in json.loads(hit.stdout)["pods"]] == [True]
        assert notebook.run("%pathways disconnect").status == "ok"


def test_a_program_runs_on_the_slices_of_a_job(machine, people, job):
    ran = machine.cli("run", "--local", "--job", JOB, "--", sys.executable, "-c", SUM)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "8 tpu 8.0"
    assert people.state(JOB) == "Running"


@pytest.mark.thorough
def test_a_notebook_learns_what_becomes_of_its_job_and_attaches_again(people, notebook):
    with people.job(headless("pausing")):
        assert notebook.run("%pathways connect --job pausing --local").status == "ok"
        since = len(notebook.seen)
        people.suspend("pausing")
        notebook.wait_for("Job pausing was suspended.", since=since)
        refused = notebook.run("%pathways reconnect").shown
        assert "Job pausing is suspended." in refused
        assert "%pathways job resume pausing" in refused
        assert notebook.run("%pathways job resume pausing").status == "ok"
        again = notebook.run("%pathways reconnect")
        assert again.status == "ok", again.shown
        assert notebook.run(SUM).text.strip() == "4 tpu 8.0"
        since = len(notebook.seen)
    notebook.wait_for("Job pausing was deleted.", since=since)
    assert "There is no job pausing" in notebook.run("%pathways reconnect").shown
    assert notebook.run("%pathways disconnect").status == "ok"


def test_a_job_that_was_resumed_this_moment_is_not_taken_for_suspended(people):
    with people.job(headless("resumed")):
        for _ in range(3):
            people.suspend("resumed")
            wait_until(lambda: people.state("resumed") == "Suspended")
            assert people.resume_and_find("resumed").job.state == "Running"


@pytest.mark.thorough
def test_what_cannot_be_attached_to_says_so_and_what_to_do(people, notebook):
    assert "There is no job nowhere" in notebook.run("%pathways connect --job nowhere --local").shown
    with people.job(training("own", "python", "-c", "0")):
        assert "headless jobs only" in notebook.run("%pathways connect --job own --local").shown
    with people.job(never_starts("stuck")):
        wait_until(lambda: people.state("stuck") == "Pending")
        shown = notebook.run("%pathways connect --job stuck --local --timeout 1").shown
        assert "Job stuck did not start within 1 s: pending" in shown
        assert "%pathways job show stuck" in shown
    assert notebook.run("import jax; print(jax.devices()[0].platform)").text.strip() == "cpu"


def test_a_job_excludes_the_settings_of_a_proxy_of_ones_own():
    environ = {"PATHWAYS_JUPYTER_TPU": "tpuv6e:2x2=2", "PATHWAYS_JUPYTER_LINGER": "60"}
    assert resolve({"job": "lab", "wait": 5}, environ=environ) == ConnectConfig(job="lab", wait=5.0)
    assert resolve({"tpu": "tpuv6e:2x2=1"}, environ={"PATHWAYS_JUPYTER_JOB": "lab"}).job == ""
    assert resolve({}, environ={"PATHWAYS_JUPYTER_JOB": "lab"}).job == "lab"
    assert resolve({"job": "lab", "gcs_bucket": "gs://b/c"}, environ={}).gcs_bucket == "gs://b/c"
    with pytest.raises(ConfigError, match="so tpu does not apply"):
        resolve({"job": "lab", "tpu": "tpuv6e:2x2=1"}, environ={})
    with pytest.raises(ConfigError, match="not the name of a job"):
        resolve({"job": "../pods"}, environ={})
