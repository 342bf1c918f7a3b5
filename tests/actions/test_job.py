"""``pathways-jupyter job ...``, ``%pathways job ...`` and ``%%pathwaysjob`` on the embedded cluster."""

import asyncio
import contextlib
import json
import re
import shlex

import pytest
import yaml
from pathways_jobs import headless, training
from waits import wait_until

from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBSETS
from pathways_jupyter.service import jobs
from pathways_jupyter.service.pathwaysjob import expansion

NEW = ("--tpu", "ct6e-standard-4t:2x2=2", "--gcs-bucket", "gs://b/t", "--image", "python:3.12")


@pytest.fixture
def apply(machine, cluster):
    """Apply a job from a file of its name; the test's end deletes it."""
    applied = []

    def apply(job, *options):
        name = job["metadata"]["name"]
        applied.append(name)
        (machine.directory / f"{name}.yaml").write_text(yaml.safe_dump(job))
        return machine.cli("job", "apply", f"{name}.yaml", "--local", *options)

    yield apply
    for name in applied:
        machine.cli("job", "delete", name, "--yes", "--local")


def test_new_writes_the_manifest_of_a_program(machine):
    made = machine.cli("job", "new", "train", *NEW, "--", "python", "train.py", "--steps", "3")
    assert made.returncode == 0, made.stderr
    job = yaml.safe_load(made.stdout)
    expected = training("train", "python", "train.py", "--steps", "3", slices=2, pathwaysDir="gs://b/t")
    del expected["metadata"]["namespace"]
    assert job == expected
    written = machine.cli("job", "new", "lab", "--tpu", "tpuv6e:2x2=1", "-o", "lab.yaml")
    assert "job apply lab.yaml" in written.stderr
    assert "template" not in yaml.safe_load((machine.directory / "lab.yaml").read_text())["spec"]["controller"]
    again = machine.cli("job", "new", "lab", "--tpu", "tpuv6e:2x2=1", "-o", "lab.yaml")
    assert (again.returncode, "cannot be written" in again.stderr) == (1, True)


def test_a_job_from_apply_to_delete(machine, apply, tmp_path):
    # It has its slice before it answers, so the resource manager is up by then; without, the job may end before it is.
    answered = tmp_path / "answered"
    answer = (
        "import jax, pathwaysutils; pathwaysutils.initialize(); jax.devices(); print('the answer is', 42); "
        f"open({str(answered)!r}, 'w')"
    )
    job = training("answering", "python", "-c", answer)
    template = job["spec"]["controller"]["template"]["spec"]
    # It runs as long as the other: with a container that has ended the head is not ready, and workers wait for that.
    helper = f"echo from the helper; until [ -e {shlex.quote(str(answered))} ]; do sleep 0.1; done"
    template["containers"].append({"name": "helper", "image": "any", "command": ["sh", "-c", helper]})
    template["initContainers"] = [{"name": "data", "image": "any", "command": ["echo", "from the data"]}]
    applied = apply(job, "--wait", "--json")
    assert applied.returncode == 0, applied.stderr
    assert json.loads(applied.stdout) == {"name": "answering", "done": "created", "state": "Completed"}
    again = machine.cli("job", "apply", "-f", "answering.yaml", "--local")
    assert "Job answering: unchanged." in again.stdout

    listed = json.loads(machine.cli("job", "list", "--json", "--local").stdout)
    assert [(each["name"], each["state"], each["slices"]) for each in listed if each["name"] == "answering"] == [
        ("answering", "Completed", 1)
    ]
    shown = machine.cli("job", "show", "answering", "--local").stdout
    assert "Job answering: completed" in shown
    # One of the last events: only the newest are shown, so that the first ones may be missing.
    assert "AllJobsCompleted" in shown
    assert "the answer is 42" in machine.cli("job", "logs", "answering", "--local").stdout
    said_by = {"helper": "from the helper", "data": "from the data", "rm": "Pathways Server serving"}
    for container, said in said_by.items():
        assert said in machine.cli("job", "logs", "answering", container, "--local").stdout
    unknown = machine.cli("job", "logs", "answering", "other", "--local")
    assert "Job answering has no container other." in unknown.stderr
    assert "data, pathways-rm, pathways-proxy, main, helper" in unknown.stderr

    refused = machine.cli("job", "delete", "answering", "--local")
    assert (refused.returncode, "add --yes" in refused.stderr) == (1, True)
    assert "is deleted" in machine.cli("job", "delete", "answering", "--yes", "--local").stdout
    gone = machine.cli("job", "show", "answering", "--local")
    assert (gone.returncode, "There is no job answering" in gone.stderr) == (1, True)


def until_shown(machine, name, said):
    """The output of `job show`, once its first line says it."""
    shown = ""

    def says():
        nonlocal shown
        shown = machine.cli("job", "show", name, "--local").stdout
        return said in shown.partition("\n")[0]

    try:
        wait_until(says)
    except AssertionError:
        raise AssertionError(shown) from None
    return shown


@pytest.mark.thorough
def test_a_failed_job_says_its_reason_first_and_its_events_in_their_order(machine, apply):
    raising = "import time\ndef load():\n    raise ValueError('no data in ' + 'x' * 100)\nprint('loading')\nload()"
    failed = apply(training("raising", "python", "-c", raising), "--wait")
    reason = "✗ Job raising: failed (ValueError: no data in " + "x" * 100 + "), 1 slice of tpuv6e:2x2"
    assert reason in failed.stderr.splitlines()
    shown = machine.cli("job", "show", "raising", "--local").stdout
    assert shown.splitlines()[0] == reason
    reasons = re.findall(r"^\S+ \S+  (?:PathwaysJob|Pod|JobSet) \S+ +(\w+)", shown, re.MULTILINE)
    assert reasons.index("Failed") > max(number for number, each in enumerate(reasons) if each == "Started")
    assert apply(training("exiting", "python", "-c", "raise SystemExit(3)"), "--wait").returncode == 1
    assert until_shown(machine, "exiting", "failed (exit code 3)")
    # The same name again: what was of the first one is not of this one.
    machine.cli("job", "delete", "exiting", "--yes", "--local")
    absent = training("exiting", "python", "-m", "MaxText.elastic_train")
    assert apply(absent, "--wait").returncode == 1
    shown = until_shown(machine, "exiting", "failed (exit code 1; its log says: ")
    assert "'MaxText.elastic_train' (ModuleNotFoundError: No module named 'MaxText')" in shown.splitlines()[0]
    known = json.loads(machine.cli("job", "show", "exiting", "--json", "--local").stdout)
    abouts = {each["about"] for each in known["events"] if each["about"].startswith("Pod ")}
    assert abouts <= {f"Pod {each['name']}" for each in known["pods"]}
    assert [each["role"] for each in known["pods"]] == ["head"]
    assert [each["reason"] for each in known["events"]].count("Failed") == 1


def test_a_program_that_never_started_is_the_reason(apply):
    late = training("late", "python", "-c", "0", image="registry/late:1")
    template = late["spec"]["controller"]["template"]["spec"]
    template["containers"][0].pop("command")
    template["activeDeadlineSeconds"] = 2
    failed = apply(late, "--wait")
    assert failed.returncode == 1
    last = failed.stderr.splitlines()[-1]
    assert "Job late: failed (DeadlineExceeded, Pod was active on the node longer" in last
    assert "it never started (" in last


def test_a_job_that_cannot_start_says_why_in_the_first_line(machine, apply):
    wait = ("python", "-c", "import threading; threading.Event().wait()")
    unknown, nowhere, barred = (training(each, *wait) for each in ("unknown", "nowhere", "barred"))
    template = unknown["spec"]["controller"]["template"]
    template["spec"]["initContainers"] = [{"name": "data", "image": "registry/unknown:1"}]
    nowhere["spec"]["workers"][0]["nodeSelector"] = {"no-node": "has-this"}
    barred["spec"]["controller"]["template"]["spec"]["serviceAccountName"] = "no-account"
    for job, said in (
        (unknown, "pending (head: ImagePullBackOff: "),
        (nowhere, "(slice 0 host 0: Unschedulable: "),
        # There is no pod that could say so.
        (barred, "pending (Job barred-pathways-head-0: FailedCreate: Error creating: "),
    ):
        assert apply(job).returncode == 0
        assert until_shown(machine, job["metadata"]["name"], said)


async def test_who_follows_a_job_learns_that_no_pod_can_be_made(cluster):
    barred = headless("followed")
    async with Client(auth.load(str(cluster))) as client:
        jobset = expansion.expand(barred)
        head = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        head["serviceAccountName"] = "no-account"
        await objects.create(client, JOBSETS, jobset)
        try:
            async with (
                asyncio.timeout(60),
                contextlib.aclosing(jobs.until_over(client, "followed", namespace="default")) as states,
            ):
                async for info in states:
                    if 'serviceaccount "no-account" not found' in info.reason:
                        break
            assert info.state == "Pending"
        finally:
            await jobs.delete(client, "followed", namespace="default")


def test_a_file_that_is_no_job_is_refused_in_a_sentence(machine, cluster):
    (machine.directory / "deep.yaml").write_text("[" * 3000)
    (machine.directory / "wrong.yaml").write_text(yaml.safe_dump(training("wrong", topology="3x3")))
    for path, said in (
        ("wrong.yaml", " of wrong.yaml: spec.workers[0].topology: "),
        ("missing.yaml", "missing.yaml cannot be read: No such file or directory.\n"),
        ("deep.yaml", "nested too deeply"),
        ("/dev/zero", "too large"),
        ("~no-such-user/y", "cannot be read"),
    ):
        refused = machine.cli("job", "apply", path, "--local")
        assert (refused.returncode, said in refused.stderr, "Traceback" in refused.stderr) == (1, True, False), path


def test_a_job_expanded_here_works_without_the_api(machine, apply):
    applied = apply(training("expanded", "python", "-c", "print('ran')"), "--as-jobset", "--wait", "--json")
    assert json.loads(applied.stdout)["state"] == "Completed", applied.stderr
    (info,) = [
        each
        for each in json.loads(machine.cli("job", "list", "--json", "--local").stdout)
        if each["name"] == "expanded"
    ]
    assert (info["kind"], info["instance_type"], info["headless"]) == ("JobSet", "tpuv6e:2x2", False)
    assert "ran" in machine.cli("job", "logs", "expanded", "--local").stdout
    assert "is deleted" in machine.cli("job", "delete", "expanded", "--yes", "--local").stdout


def test_a_name_that_the_cluster_would_refuse_is_refused_before_a_manifest_is_written(machine):
    refused = machine.cli("job", "new", "Train_X", "--tpu", "tpuv6e:2x2=1", "-o", "refused.yaml")
    assert refused.returncode == 1
    assert "'Train_X' cannot be the name of a job." in refused.stderr
    assert not (machine.directory / "refused.yaml").exists()


def test_the_next_step_is_in_the_cluster_that_was_named(machine, cluster):
    for place in ("--local", f"--kubeconfig {cluster} --namespace default"):
        refused = machine.cli("job", "show", "none", *place.split())
        (next_step,) = re.findall("pathways-jupyter (.*) shows them", refused.stderr)
        assert next_step == f"job list {place}"
        assert machine.cli(*next_step.split()).returncode == 0


def test_a_job_is_suspended_and_resumed(machine, apply):
    applied = apply(headless("idle"), "--wait")
    assert applied.returncode == 0
    assert "does not end by itself: pathways-jupyter job delete idle --local ends it." in applied.stderr
    asked = machine.cli("job", "suspend", "idle", "--local")
    assert asked.returncode == 1
    assert "Suspend job idle (running) in namespace default? Its pods end" in asked.stderr
    assert "is suspended" in machine.cli("job", "suspend", "idle", "--local", "--yes").stdout
    assert "is resumed" in machine.cli("job", "resume", "idle", "--local").stdout


def test_the_log_of_a_program_whose_init_container_failed_says_that(machine, apply):
    made = training("unfetched")
    init = {"name": "data", "image": "any", "command": ["bash", "-c", "echo no data; exit 3"]}
    made["spec"]["controller"]["template"]["spec"]["initContainers"] = [init]
    assert apply(made).returncode == 0
    wait_until(lambda: "which runs before it" in machine.cli("job", "logs", "unfetched", "--local").stderr)
    said = machine.cli("job", "logs", "unfetched", "--local").stderr
    assert "Container main of job unfetched has not started: data, which runs before it, failed (Error" in said
    assert "exit code 3" in said
    assert "pathways-jupyter job logs unfetched data --local shows what it said." in said
    assert machine.cli("job", "logs", "unfetched", "data", "--local").stdout == "no data\n"


@pytest.mark.thorough
def test_jobs_from_a_notebook(machine, shared_notebook, cluster):
    assert shared_notebook.run("%load_ext pathways_jupyter").status == "ok"
    cell = yaml.safe_dump(training("celled", "python", "-c", "print('from a cell')"), sort_keys=False)
    ran = shared_notebook.run(f"%%pathwaysjob --local --wait\n{cell}")
    assert ran.status == "ok", ran.shown
    assert "Job celled: created." in ran.text
    assert "Job celled: completed" in ran.text
    assert "from a cell" in shared_notebook.run("%pathways job logs celled --local").text
    assert "celled" in shared_notebook.run("%pathways job list --local").text
    bad = shared_notebook.run(f"%%pathwaysjob --local\n{cell.replace('2x2', '9x9').replace('celled', 'other')}")
    assert "of the cell: spec.workers[0].topology" in bad.shown
    both = cell.replace("2x2", "9x9").replace("celled", "other").replace("controller:", "controller:\n    wrong: 1")
    bad = shared_notebook.run(f"%%pathwaysjob --local\n{both}")
    assert "spec.controller.wrong: unknown field" in bad.shown
    request = shared_notebook.begin("%pathways job delete celled --local")
    question = shared_notebook.client.get_stdin_msg(timeout=60)["content"]["prompt"]
    assert question.startswith("Delete job celled (completed) from namespace default")
    shared_notebook.client.input("n")
    assert "Not deleted." in shared_notebook.finish(request).text
    # Deleted elsewhere while the question is open.
    request = shared_notebook.begin("%pathways job delete celled --local")
    shared_notebook.client.get_stdin_msg(timeout=60)
    assert "Job celled is deleted." in machine.cli("job", "delete", "celled", "--local", "--yes").stdout
    shared_notebook.client.input("y")
    assert "Job celled was gone already." in shared_notebook.finish(request).text
    shown = shared_notebook.run("%pathways job new t --tpu tpuv6e:2x2=1 --image i -- python t.py --x")
    assert yaml.safe_load(shown.text)["spec"]["controller"]["template"]["spec"]["containers"][0]["command"] == [
        "python", "t.py", "--x",
    ]  # fmt: skip


def test_a_job_is_shown_live_until_it_is_over(shared_notebook, cluster):
    assert shared_notebook.run("%load_ext pathways_jupyter").status == "ok"
    cell = yaml.safe_dump(training("watched", "python", "-c", "print('done')"), sort_keys=False)
    assert shared_notebook.run(f"%%pathwaysjob --local\n{cell}").status == "ok"
    since = len(shared_notebook.seen)
    # The cell that runs below does not keep the view from being drawn again.
    shown = shared_notebook.run("job = %pathways job show watched --local\ndisplay(job)\nimport threading")
    assert shown.status == "ok", shown.shown
    busy = shared_notebook.begin("while job.value.job.state != 'Completed': threading.Event().wait(0.1)")
    # The cell may end just before the view that made it end is published, so its end is waited for first.
    assert shared_notebook.finish(busy).status == "ok"
    assert "Completed" in shared_notebook.wait_for("Job watched: completed", since=since)
    assert "is deleted" in shared_notebook.run("%pathways job delete watched --local --yes").text
