"""An operator of one namespace asks for nothing beyond it, and no client lists again what it watches."""

from collections import Counter

from pathways_jobs import training
from program_log import Log

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.kube.objects import JOBS, JOBSETS, PATHWAYS_JOBS
from pathways_jupyter.operator import main
from pathways_jupyter.operator.sweeper import Sweeper
from pathways_jupyter.service import leases


async def test_an_operator_of_one_namespace_stays_in_it(bench, meanwhile, options):
    asked = Counter()

    def note(user, question):
        if user.name == "operator":
            asked[question.verb, question.resource, question.namespace] += 1

    options.namespace = "default"
    async with bench.client() as client, bench.client(name="operator") as own:
        await bench.install(client)
        bench.server.audit = note
        async with meanwhile(main.Operator(Informer(own), options)):
            for number in range(3):
                await objects.create(client, PATHWAYS_JOBS, training(f"t{number}"))
                await bench.until(client, f"t{number}", bool, JOBSETS)
    # Another controller of the same API may run in any namespace; only pods with a controller's label are followed.
    beyond = {each for each in asked if each[2] != "default"}
    assert beyond == {("list", "pods", ""), ("watch", "pods", "")}
    assert not {each for each, times in asked.items() if each[0] == "list" and times > 1}
    assert asked["list", "jobsets", "default"] == asked["list", "pathwaysjobs", "default"] == 1


async def test_a_sweeper_lists_only_what_it_is_about_to_delete(bench, meanwhile):
    """It looks at what it knows, some times before a lease of a second ends; its interval is beyond the deadline."""
    asked, lines = Counter(), Log()

    def note(user, question):
        # Until something is deleted.
        if user.name == "operator" and not any(verb == "delete" for verb, _ in asked):
            asked[question.verb, question.resource] += 1

    async with bench.client() as client, bench.client(name="operator") as own:
        live = await bench.proxy(client, "live")
        await leases.create(client, live, seconds=3600)
        bench.server.audit = note
        async with meanwhile(Sweeper(Informer(own), interval=1e6, say=lines.write)):
            await leases.create(client, await bench.proxy(client, "dead"), seconds=1)
            await lines.until("(session dead of jane): its lease")
            left = (await objects.list_(client, JOBS)).items
            assert [job["metadata"]["name"] for job in left] == [live["metadata"]["name"]]
    # When it starts, and when the lease has run out; the Leases also to follow them.
    assert asked["list", "jobs"] == asked["list", "pods"] <= 2
    assert asked["list", "leases"] <= 3
