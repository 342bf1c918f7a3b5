"""JobSets that Google's tools have made, as the jobs that they are: listed, shown, read, attached to, deleted."""

import json
import re
import sys

import foreign_jobsets
import pytest
from asks import ask
from waits import wait_until

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import JOBSETS

COUNT = "import jax; print(len(jax.devices()), jax.devices()[0].platform)"
FAILING = ("python", "-m", "MaxText.elastic_train")


@pytest.fixture(scope="module")
def made(cluster):
    """The names of the jobs, one headless of each tool, with one that fails; there is a Shared Pathways Service too."""
    jobsets = [make(f"of-{tool[:5]}", slices=1) for tool, make in foreign_jobsets.HEADLESS.items()]
    closed = foreign_jobsets.pathwaysutils("of-closed")
    arguments = foreign_jobsets.proxy_of(closed)["args"]
    arguments[:] = [each.replace("$(PATHWAYS_HEAD)", "nowhere") for each in arguments]
    jobsets += [closed, foreign_jobsets.completed_toolkit("of-whole")]
    jobsets += [foreign_jobsets.toolkit("of-fails", *FAILING), foreign_jobsets.shared_service("of-all")]
    for jobset in jobsets:
        ask(cluster, objects.create, JOBSETS, jobset)
    made = [jobset["metadata"]["name"] for jobset in jobsets]
    yield made[:-1]
    for name in made:
        ask(cluster, objects.delete, JOBSETS, name, namespace="default")


def test_they_are_listed_and_a_service_is_none(machine, made):
    listed = json.loads(machine.cli("job", "list", "--json", "--local").stdout)
    jobs = {each["name"] for each in listed}
    assert jobs >= set(made)
    assert "of-all" not in jobs
    services = {each["name"] for each in json.loads(machine.cli("services", "--json", "--local").stdout)}
    assert "of-all" in services
    assert not services & set(made)


@pytest.mark.parametrize("name", ["of-whole", "of-xpk", "of-pathw"])
def test_a_program_uses_the_slices_of_a_headless_one(machine, made, name):
    ran = machine.cli("run", "--local", "--job", name, "--", sys.executable, "-c", COUNT)
    assert (ran.returncode, ran.stdout.strip()) == (0, "4 tpu"), ran.stderr
    assert (f"the proxy of job {name} accepts only clients with ALTS" in ran.stderr) == (name == "of-xpk")
    assert "MegaScale transport init succeeded" in machine.cli("job", "logs", name, "worker", "0", "--local").stdout


def test_what_keeps_notebooks_from_one_is_marked_and_explained(machine, made):
    listed = json.loads(machine.cli("job", "list", "--json", "--local").stdout)
    marks = {each["name"]: (each["demands_alts"], each["unset"]) for each in listed}
    assert marks["of-toolk"] == (True, ["pathways-proxy: $(PATHWAYS_HEAD)"])
    assert marks["of-xpk"] == (True, [])
    assert marks["of-whole"] == marks["of-pathw"] == (False, [])
    rows = machine.cli("job", "list", "--local").stdout.splitlines()
    (row,) = (each for each in rows if each.startswith("of-toolk"))
    assert "JobSet, headless, needs ALTS, variable not set" in row
    shown = machine.cli("job", "show", "of-toolk", "--local").stdout
    assert "leaves them as they stand (pathways-proxy: $(PATHWAYS_HEAD))" in shown
    assert "accepts only clients with ALTS" in shown


@pytest.mark.thorough
def test_to_attach_to_one_whose_proxy_cannot_find_its_service_fails_with_the_reason(machine, made):
    """Long before the default limit of five minutes, which nothing here is given."""
    refused = machine.cli("run", "--local", "--job", "of-toolk", "--", sys.executable, "-c", COUNT)
    assert refused.returncode != 0
    assert "leaves them as they stand (pathways-proxy: $(PATHWAYS_HEAD))" in refused.stderr
    said = next(each for each in refused.stderr.splitlines() if "is not open yet" in each)
    assert re.search(r"Its log says: .*Waiting for \$\(PATHWAYS_HEAD\):29001", said)
    assert "jobset.sigs.k8s.io/coordinator" in refused.stderr, "what to do"


@pytest.mark.thorough
@pytest.mark.parametrize("limit", ["--wait", "--timeout"])
def test_a_port_that_does_not_open_is_reported_and_waited_for_within_the_limit(machine, made, limit):
    ran = machine.cli("run", "--local", "--job", "of-closed", limit, "6", "--", sys.executable, "-c", COUNT)
    assert ran.returncode != 0
    reported, failed = (
        next(each for each in ran.stderr.splitlines() if words in each)
        for words in ("is not open yet", "refuses connections")
    )
    for each in (reported, failed):
        assert re.search(r"Its log says: .*Waiting for nowhere:29001", each)


def test_one_whose_program_failed_says_why(machine, made):
    def first_line():
        return machine.cli("job", "show", "of-fails", "--local").stdout.partition("\n")[0]

    wait_until(lambda: "failed" in first_line())
    shown = first_line()
    assert "its log says: " in shown
    assert "No module named 'MaxText'" in shown
    assert "No module named 'MaxText'" in machine.cli("job", "logs", "of-fails", "--local").stdout


def test_one_is_deleted_after_a_question(machine, made):
    refused = machine.cli("job", "delete", "of-xpk", "--local")
    assert refused.returncode == 1
    assert "Delete job of-xpk (running) from namespace default" in refused.stderr
    assert "is deleted" in machine.cli("job", "delete", "of-xpk", "--local", "--yes").stdout
