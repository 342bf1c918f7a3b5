"""Why a job has failed or does not start, from its pods and the log of its program."""

import subprocess
import sys

import foreign_jobsets
import pytest

from pathways_jupyter.service import discovery
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


def test_without_a_traceback_the_exit_code_is_said_with_what_the_log_says_last():
    program = description.ContainerFailure("p", "main", "", "exit code 1")
    missing = "/usr/bin/python3: No module named MaxText"
    assert program.reason([missing]) == f"exit code 1; its log says: {missing}"
    # Launchers say a few words after their program.
    assert program.reason(["step 3", missing, "", "XPK End: Thu Nov 26", "EXIT_CODE=1", ""]).endswith(missing)
    assert program.reason(["step 3", "saved"]) == "exit code 1; its log says: saved"
    assert program.reason([]) == "exit code 1"
    handled = ["Traceback (most recent call last):", '  File "t.py", line 1', "OSError: tried again", "step 4"]
    assert program.reason(handled) == "OSError: tried again"
    killed = description.failure([pod("pathways-head", main=[("main", 137, "05")])], "", main="main")
    assert killed.reason(handled) == "exit code 137 (SIGKILL)"


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


def test_a_program_that_never_started_is_the_reason_and_no_sidecar_that_was_stopped():
    waiting = {"name": "main", "state": {"waiting": {"reason": "CreateContainerError", "message": "no such\nuser"}}}
    sidecars = [("pathways-rm", 143, "05"), ("pathways-proxy", 143, "04")]
    never = pod("pathways-head", sidecars=sidecars, containerStatuses=[waiting])
    found = description.failure([never], "", main="main")
    assert (found.place, found.has_log) == ("", False)
    assert found.reason([]).startswith("it never started (CreateContainerError: no such")
    # An init container that failed keeps all others waiting.
    behind = pod("pathways-head", init=[("data", 1, "02")], containerStatuses=[waiting])
    assert description.failure([behind], "", main="main").container == "data"
    # The kubelet has ended the pod: its reason comes first.
    evicted = {"reason": "Evicted", "message": "The node was low on resource: memory."}
    full = pod("pathways-head", sidecars=sidecars, main=[("main", 137, "05")], **evicted)
    said = description.failure([full], "", main="main").reason([])
    assert said == "Evicted, The node was low on resource: memory., exit code 137 (SIGKILL)"


def test_of_two_containers_that_failed_in_one_second_the_program_is_the_reason():
    both = pod("pathways-head", main=[("helper", 1, "05"), ("main", 3, "05")])
    assert description.failure([both], "", main="main").container == "main"


def test_a_part_that_cannot_be_made_is_the_last_warning_about_what_lacks_it():
    def warning(uid, message, time, type="Warning"):
        about = {"kind": "Job", "name": "t-worker-0", "uid": uid}
        return {"metadata": {}, "involvedObject": about, "type": type, "reason": "FailedCreate", "message": message,
                "lastTimestamp": f"2026-01-01T00:00:{time}Z"}  # fmt: skip

    events = [warning("a", "first", "01"), warning("a", "second", "03"), warning("b", "of another", "04")]
    (since,) = (description.event_info(each).time for each in [warning("", "", "02")])
    assert description.refused(events, {"a": since}) == "Job t-worker-0: FailedCreate: second"
    assert description.refused(events[:1], {"a": since}) == "", "a part was made since"
    assert description.refused([warning("a", "made", "03", "Normal")], {"a": 0.0}) == ""


def test_jobsets_of_googles_tools_are_jobs_by_their_shape():
    for made in foreign_jobsets.HEADLESS.values():
        headless, program = made(slices=2), made("train", "python", "-c", "0")
        info = description.job_info(headless)
        assert (info.headless, info.slices, info.instance_type, info.kind) == (True, 2, "tpuv6e:2x2", "JobSet")
        assert not description.job_info(program).headless
        assert description.main_container(program) in {"workload-container", "jax-tpu", "user-workload"}
        for each in (headless, program):
            assert description.is_job(each)
            assert discovery.describe(each) is None, "it is no service"
    service = foreign_jobsets.shared_service()
    assert not description.is_job(service)
    assert discovery.describe(service) is not None
    # Part of a PathwaysJob, which is the job.
    owned = foreign_jobsets.xpk()
    owned["metadata"]["ownerReferences"] = [{"kind": "PathwaysJob"}]
    assert not description.is_job(owned)
    assert not description.is_job({"kind": "JobSet", "metadata": {"name": "other"}})


def test_the_pods_of_the_job_that_the_cluster_names_are_the_reason():
    found = description.failure([HEAD, WORKER], "job t-worker-0 failed: backoff limit", main="main")
    assert found.reason([]) == "slice 0 host 1, container pathways-worker: exit code 137 (SIGKILL)"


def test_a_job_whose_pods_all_succeeded_or_are_gone_has_no_failed_container():
    assert description.failure([pod("pathways-head", main=[("main", 0, "01")])], "", main="main") is None
    assert description.failure([], "DeadlineExceeded", main="main") is None


def test_a_container_of_the_head_that_has_ended_keeps_the_workers_waiting():
    head = pod("pathways-head", init=[("data", 0, "01")], main=[("helper", 0, "02")], phase="Running")
    head["status"]["containerStatuses"].append({"name": "main", "state": {"running": {}}})
    assert description.unready([head]).startswith("head: helper has ended, and workers wait until all")
    head["status"]["containerStatuses"].pop(0)
    assert description.unready([head]) == ""
    assert description.unready([pod("pathways-head", main=[("main", 0, "01")], phase="Succeeded")]) == ""


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
