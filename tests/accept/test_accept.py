"""``pathways-jupyter accept``, as a user runs it, on the embedded cluster."""

from __future__ import annotations

import getpass
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from permissions import USER, documented_rules
from watched_cluster import TYPE, Watched

from pathways_jupyter.accept.plan import CHECKS

pytestmark = pytest.mark.timeout(300)


def accept(machine, *arguments: str):
    """Run it; return its exit code, and each check's outcome and lines."""
    ran = machine.cli("accept", "--json", "--report", "report.md", *arguments, timeout=280)
    assert ran.stdout, ran.stderr
    value = json.loads(ran.stdout)
    assert value["left"] == [], ran.stderr
    return ran.returncode, {each["name"]: (each["outcome"], " ".join(each["lines"])) for each in value["results"]}


def only(*names: str) -> list[str]:
    return [word for name in names for word in ("--only", name)]


@pytest.mark.thorough
def test_every_promise_holds_on_the_embedded_cluster_and_the_report_has_no_secrets(machine, cluster):
    code, checks = accept(machine, "--local", "--destructive", "--yes")
    assert {name: outcome for name, (outcome, _) in checks.items()} == {each.name: "passed" for each in CHECKS}, checks
    assert code == 0
    assert "DATA_LOSS" in checks["slice-lost"][1]
    assert "Training continues on slices 0, 1." in checks["elastic"][1]
    assert "0 Jobs, 0 Pods, 0 Leases, 0 sockets, 0 session files, 0 supervisors" in checks["kernel-killed"][1]
    report = (machine.directory / "report.md").read_text()
    assert report.startswith("# pathways-jupyter accept: 12 passed\n")
    assert "Left behind: nothing." in report
    kubeconfig = yaml.safe_load(cluster.read_text())
    secrets = [kubeconfig["users"][0]["user"]["token"], kubeconfig["clusters"][0]["cluster"]["server"]]
    for secret in (*secrets, getpass.getuser(), str(machine.directory), "127.0.0.1"):
        assert secret not in report


@pytest.mark.thorough
def test_what_cannot_run_is_skipped_and_says_why(machine, cluster):
    chosen = only("all-reduce", "interruption", "slice-lost")
    code, checks = accept(machine, "--local", "--tpu", "tpuv6e:2x2=1", "--no-relay", "--destructive", "--yes", *chosen)
    assert code == 0
    assert checks["all-reduce"] == checks["slice-lost"] == ("skipped", "the session has one slice only")
    assert checks["interruption"] == ("skipped", "there is no relay beside the proxy")
    assert checks["lease"] == ("skipped", "not chosen")
    assert checks["disconnect"][0] == "passed"


@pytest.fixture
def watched():
    # A socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pw-") as directory, Watched(Path(directory)) as made:
        yield made


@pytest.mark.thorough
def test_the_documented_role_is_enough_for_all_but_the_loss_of_a_slice(machine, watched):
    kubeconfig = watched.kubeconfig("alice", documented_rules(USER))
    chosen = only("colocated", "interruption", "slice-lost", "kernel-killed", "lease")
    code, checks = accept(machine, "--kubeconfig", kubeconfig, "--destructive", "--yes", *chosen)
    assert code == 0
    assert [checks[name][0] for name in ("interruption", "kernel-killed", "lease")] == 3 * ["passed"], checks
    assert checks["slice-lost"][1].startswith("the Role pathways-jupyter-faults is needed: ")
    assert checks["colocated"][1].endswith("have no colocated Python sidecar")


def test_a_check_that_fails_is_the_exit_code_and_what_needs_it_is_skipped(machine, cluster):
    where = ["--kubeconfig", str(cluster), "-n", "empty", "--tpu", f"{TYPE}=1"]
    code, checks = accept(machine, *where, *only("compute"))
    assert code == 1
    assert checks["connect"][0] == "failed"
    assert "There is no namespace empty in cluster" in checks["connect"][1]
    assert checks["compute"] == checks["disconnect"] == ("skipped", "there is no session")


@pytest.mark.parametrize("moment", ["… connect", "… lease"])
def test_an_interrupt_stops_it_and_nothing_is_left(machine, cluster, moment):
    command = ["accept", "--local", "--only", moment.removeprefix("… "), "--json", "--report", "report.md"]
    running = subprocess.Popen(
        [sys.executable, "-u", "-m", "pathways_jupyter", *command],
        env=machine.environ,
        cwd=machine.directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in running.stderr:
        if line.startswith(moment):
            break
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=200)
    assert running.returncode == 130
    value = json.loads(output)
    assert (value["interrupted"], value["left"], value["passed"]) == (True, [], False)
    assert json.loads(machine.cli("slices", "--local", "--json").stdout)[0]["holders"] == []


def test_bad_input_changes_nothing(machine, cluster):
    for arguments, said in (
        (["--only", "compote"], "There is no check 'compote'"),
        (["--skip", "compote"], "There is no check 'compote'"),
        (["--only", "elastic"], "elastic takes a slice down"),
        (["--report", "/nowhere/report.md"], "cannot be written"),
        (["--destructive"], "needs an answer, and there is no terminal"),
        (["--kubeconfig", str(cluster), "-n", "empty"], "There is no namespace empty in cluster"),
    ):
        where = [] if "--kubeconfig" in arguments else ["--local"]
        refused = machine.cli("accept", *where, *arguments)
        assert refused.returncode == 1
        assert said in refused.stderr


def test_a_dry_run_lists_the_checks(machine):
    listed = machine.cli("accept", "--dry-run", "--skip", "lease").stdout
    assert "✓  interruption" in listed
    assert "·  elastic        it takes a slice down; --destructive includes it" in listed
    assert "·  lease          not chosen" in listed
