"""Why a job has failed or does not start, from its pods and the log of its program."""

import subprocess
import sys

import pytest

from pathways_jupyter.service.pathwaysjob import description


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise ValueError('no data')", "ValueError: no data"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("try: 1 / 0\nexcept ValueError: pass\nfinally: raise RuntimeError('no mean')", "RuntimeError: no mean"),
        ("error = OSError('full')\nerror.add_note('on disk')\nraise error", "OSError: full"),
        ("raise ExceptionGroup('two', [ValueError('a'), TypeError('b')])", "ExceptionGroup: two (2 sub-exceptions)"),
        ("import asyncio\nasync def main():\n  async with asyncio.TaskGroup() as group: group.create_task(fail())\n"
         "async def fail(): raise OSError('in a task')\nasyncio.run(main())", "OSError: in a task"),
        ("import json; json.loads('{')", "json.decoder.JSONDecodeError: Expecting property name enclosed"),
        ("import traceback\ntry: 1 / 0\nexcept Exception: traceback.print_exc()\nraise ValueError", "ValueError"),
        ("print('ValueError: only printed'); raise SystemExit(3)", ""),
        ("print('fine')", ""),
    ],
)  # fmt: skip
def test_the_last_error_of_a_real_traceback(program, said):
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    found = description.last_error((ran.stdout + ran.stderr).splitlines())
    assert found.startswith(said) if said else not found


def pod(role, *, job="t-pathways-head-0", sidecars=(), init=(), main=(), **status):
    """A pod of a job with containers (name, exit code, end) that have ended."""

    def ended(name, code, at):
        terminated = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": at}
        return {"name": name, "state": {"terminated": terminated}}

    labels = {"job-name": job, "jobset.sigs.k8s.io/replicatedjob-name": role, "jobset.sigs.k8s.io/job-index": "0",
              "batch.kubernetes.io/job-completion-index": "1"}  # fmt: skip
    return {
        "metadata": {"name": f"{job}-0-x", "labels": labels},
        "spec": {"initContainers": [{"name": each[0], "restartPolicy": "Always"} for each in sidecars]},
        "status": {
            "phase": "Failed",
            "initContainerStatuses": [ended(*each) for each in (*sidecars, *init)],
            "containerStatuses": [ended(*each) for each in main],
            **status,
        },
    }


HEAD = pod("pathways-head", sidecars=[("pathways-rm", 143, "05")], main=[("main", 3, "05"), ("logger", 137, "06")])
WORKER = pod("worker", job="t-worker-0", main=[("pathways-worker", 137, "09")])


def test_the_container_that_failed_first_is_the_reason_and_no_sidecar_that_was_stopped_after_it():
    found = description.failure([HEAD], "jobset failed", main="main")
    assert (found.container, found.reason([])) == ("main", "exit code 3")
    data = pod("pathways-head", init=[("data", 1, "02")])
    assert description.failure([data], "", main="main").reason([]) == "head, container data: exit code 1"


def test_the_pods_of_the_job_that_the_cluster_names_are_the_reason():
    found = description.failure([HEAD, WORKER], "job t-worker-0 failed: backoff limit", main="main")
    assert found.reason([]) == "slice 0 host 1, container pathways-worker: exit code 137 (SIGKILL)"


def test_a_job_whose_pods_all_succeeded_or_are_gone_has_no_failed_container():
    assert description.failure([pod("pathways-head", main=[("main", 0, "01")])], "", main="main") is None
    assert description.failure([], "DeadlineExceeded", main="main") is None


def test_the_most_serious_reason_of_waiting_pods_is_shown_with_their_number():
    def waiting(role, reason, message=""):
        container = {"name": "c", "state": {"waiting": {"reason": reason, "message": message}}}
        return pod(role, phase="Pending", containerStatuses=[container])

    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    nowhere = pod("worker", phase="Pending", conditions=[scheduled])
    assert description.stuck([waiting("worker", "ContainerCreating"), HEAD]) == ""
    assert description.stuck([nowhere]) == "slice 0 host 1: Unschedulable: 0/3 nodes"
    found = description.stuck([nowhere, waiting("worker", "ErrImageNeverPull", "no\nimage")])
    assert found.startswith("slice 0 host 1: ErrImageNeverPull: its image is not on the node: no")
    assert found.endswith("(and 1 more pod)")
    assert "\n" not in found
