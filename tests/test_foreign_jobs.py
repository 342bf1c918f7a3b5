"""JobSets that Google's tools have made, as the jobs that they are: listed, shown, read, attached to, deleted."""

import asyncio
import json
import sys

import foreign_jobsets
import pytest
from waits import wait_until

from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBSETS

COUNT = "import jax; print(len(jax.devices()), jax.devices()[0].platform)"
FAILING = ("python", "-m", "MaxText.elastic_train")


@pytest.fixture(scope="module")
def made(cluster):
    """The names of the jobs, one headless of each tool, with one that fails; there is a Shared Pathways Service too."""
    jobsets = [make(f"of-{tool[:5]}", slices=1) for tool, make in foreign_jobsets.HEADLESS.items()]
    jobsets += [foreign_jobsets.toolkit("of-fails", *FAILING), foreign_jobsets.shared_service("of-all")]

    async def each(act):
        async with Client(auth.load(str(cluster))) as client:
            for jobset in jobsets:
                await act(client, jobset)

    asyncio.run(each(lambda client, jobset: objects.create(client, JOBSETS, jobset)))
    yield [jobset["metadata"]["name"] for jobset in jobsets[:-1]]
    asyncio.run(
        each(lambda client, jobset: objects.delete(client, JOBSETS, jobset["metadata"]["name"], namespace="default"))
    )


def test_they_are_listed_and_a_service_is_none(machine, made):
    listed = json.loads(machine.cli("job", "list", "--json", "--local").stdout)
    makers = {each["name"]: each["maker"] for each in listed}
    assert makers.keys() >= set(made)
    assert "of-all" not in makers
    assert (makers["of-toolk"], makers["of-xpk"]) == ("the Cluster Toolkit", "xpk")
    services = {each["name"] for each in json.loads(machine.cli("services", "--json", "--local").stdout)}
    assert "of-all" in services
    assert not services & set(made)


@pytest.mark.parametrize("name", ["of-toolk", "of-pathw"])
def test_a_program_uses_the_slices_of_a_headless_one(machine, made, name):
    ran = machine.cli("run", "--local", "--job", name, "--", sys.executable, "-c", COUNT)
    assert (ran.returncode, ran.stdout.strip()) == (0, "4 tpu"), ran.stderr
    assert f"the proxy of job {name} accepts only clients with ALTS" in ran.stderr
    assert "MegaScale transport init succeeded" in machine.cli("job", "logs", name, "worker", "0", "--local").stdout


def test_one_whose_program_failed_says_why(machine, made):
    def first_line():
        return machine.cli("job", "show", "of-fails", "--local").stdout.partition("\n")[0]

    wait_until(lambda: "failed" in first_line())
    shown = first_line()
    assert "its log says: " in shown
    assert "No module named 'MaxText'" in shown
    assert "No module named 'MaxText'" in machine.cli("job", "logs", "of-fails", "--local").stdout


def test_the_question_before_one_is_deleted_says_whose_it_is(machine, made):
    refused = machine.cli("job", "delete", "of-xpk", "--local")
    assert refused.returncode == 1
    assert "Delete job of-xpk (running, a JobSet of xpk) from namespace default" in refused.stderr
    assert "is deleted" in machine.cli("job", "delete", "of-xpk", "--local", "--yes").stdout
