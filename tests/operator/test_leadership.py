import asyncio
import json
import os
import signal
import sys
from collections import Counter

import aiohttp
import portpicker
import pytest
import yaml
from click.testing import CliRunner
from pathways_jobs import training
from program_log import Log

from pathways_jupyter.cli import main as cli
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.kube.objects import JOBSETS, LEASES, PATHWAYS_JOBS, PODS
from pathways_jupyter.kube.watch import watch
from pathways_jupyter.operator import main
from pathways_jupyter.operator.election import is_rival
from pathways_jupyter.operator.job_controller import EVENTS
from pathways_jupyter.service import leases, names
from pathways_jupyter.service.pathwaysjob import definition, installation

DEADLINE = 60.0
RIVAL = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "pathways-job-controller-manager-x",
        "namespace": "pathways-job-system",
        "labels": {"control-plane": "controller-manager", "app.kubernetes.io/name": "pathways-job"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "manager", "uid": "u", "controller": True}
        ],
    },
    "spec": {"containers": [{"name": "manager", "image": "registry/pathwaysjob-controller:v0.1.1"}]},
}


async def start(bench, *arguments, name="x"):
    kubeconfig = bench.kubeconfig(name=name)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pathways_jupyter.operator.main", "--kubeconfig", kubeconfig, *arguments),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


async def until_said(process, text):
    lines = []
    async with asyncio.timeout(DEADLINE):
        while text not in (line := (await process.stdout.readline()).decode()):
            assert line, f"it ended: {lines}"
            lines.append(line)
    return line


class Operator:
    """An operator in a process of its own, and its log."""

    def __init__(self, process):
        self.process, self.log = process, Log()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def begin(cls, bench):
        return cls(await start(bench, "--lease-seconds", "3"))

    async def _read(self):
        while line := (await self.process.stdout.readline()).decode():
            self.log.write(line.strip())

    async def kill(self):
        self.process.kill()
        await self.process.wait()
        await self._reading


@pytest.mark.thorough
async def test_operators_that_are_killed_in_turn_handle_no_job_twice(bench):
    """Each is killed while it handles new jobs; the other one leads then, and a new one waits."""
    async with bench.client() as client:
        await bench.install(client)
        leader, spare = await Operator.begin(bench), None
        await leader.log.until("PathwaysJobs: controlling them")
        all_logs, jobs = [leader.log], []
        for turn in range(3):
            spare = await Operator.begin(bench)
            all_logs.append(spare.log)
            await spare.log.until("is the leader")
            batch = [f"j{turn}-{number}" for number in range(4)]
            for name in batch:
                await objects.create(client, PATHWAYS_JOBS, training(name))
            # Killed as soon as it has begun with them; the watch is the only sign from outside.
            await bench.until(client, batch[0], bool, JOBSETS)
            await leader.kill()
            await spare.log.until("PathwaysJobs: controlling them")
            for name in batch:
                await bench.job_in(client, name, "Pending")
            jobs += batch
            leader = spare
        await leader.kill()
        jobsets = (await objects.list_(client, JOBSETS, namespace="default")).items
        assert sorted(each["metadata"]["name"] for each in jobsets) == sorted(jobs)
        # An event's name holds the JobSet's uid: a second JobSet of a job would have a second event.
        events = (await objects.list_(client, EVENTS, namespace="default")).items
        written = [(each["involvedObject"]["name"], each["reason"]) for each in events]
        assert sorted(written) == sorted(set(written))
        assert {(name, "Pending") for name in jobs} <= set(written)
        created = [line.split()[-1] for log in all_logs for line in log if "created JobSet" in line]
        assert len(created) == len(set(created)), "two operators created the JobSet of a job"


async def test_each_part_of_a_leader_watches_what_it_needs(bench):
    """They are counted once a job, a dead session and the metrics have shown that all its parts follow the cluster."""
    watches, swept = Counter(), asyncio.Event()

    def audit(user, question):
        if user.name == "operator":
            watches[question.resource] += question.verb == "watch"
            if question.verb == "delete" and question.resource == "jobs":
                swept.set()

    async with bench.client() as client:
        await bench.install(client)
        bench.server.audit = audit
        port = str(portpicker.pick_unused_port())
        operator = await start(bench, "--metrics-port", port, name="operator")
        await until_said(operator, "PathwaysJobs: controlling them")
        await objects.create(client, PATHWAYS_JOBS, training("a"))
        await bench.job_in(client, "a", "Pending")
        await leases.create(client, await bench.proxy(client, "dead"), seconds=1)
        await leases.create(client, await bench.proxy(client, "live"), seconds=3600)
        await asyncio.wait_for(swept.wait(), DEADLINE)
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert "pathways_up 1.0" in (await answer.text()).splitlines()
        operator.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(operator.wait(), DEADLINE) == 0
        # One that ends in order hands over at once: the Lease has no holder then.
        lease = await objects.get(client, LEASES, names.OPERATOR_LEASE, namespace="default")
        assert lease["spec"]["holderIdentity"] == ""
    # All of the pods for the metrics only; other controllers' by their label.
    assert +watches == {"pathwaysjobs": 1, "jobsets": 2, "jobs": 1, "pods": 2, "leases": 2}


async def test_its_lease_is_in_a_namespace_of_its_own_where_it_has_one(bench, meanwhile, options):
    options.own_namespace = "kube-public"
    async with bench.client() as client:
        await bench.install(client)
        async with meanwhile(main.Operator(Informer(client), options)):
            async with asyncio.timeout(DEADLINE):
                async for change in watch(client, LEASES, namespace="kube-public"):
                    if change.object.get("metadata", {}).get("name") == names.OPERATOR_LEASE:
                        break


async def test_it_stands_back_while_another_controller_runs(bench, meanwhile, options, monkeypatch):
    async with bench.client() as client:
        await bench.install(client)
        namespaces = objects.Resource("", "v1", "namespaces", "Namespace", namespaced=False)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "pathways-job-system"}}
        await objects.create(client, namespaces, namespace)
        await objects.create(client, PODS, RIVAL)
        log = Log()
        monkeypatch.setattr(main, "report", log.write)
        async with meanwhile(main.Operator(Informer(client), options)):
            await log.until("standing back")
            log.clear()
            await objects.create(client, PATHWAYS_JOBS, training("a"))
            name, place = RIVAL["metadata"]["name"], RIVAL["metadata"]["namespace"]
            await objects.delete(client, PODS, name, namespace=place, grace_seconds=0)
            await bench.until(client, "a", bool, JOBSETS)
            await objects.create(client, PODS, RIVAL)
            await log.until("standing back")


async def test_an_account_that_may_not_read_pods_controls_jobs_and_sweeps_them(bench, meanwhile, options, monkeypatch):
    (role,) = (each for each in installation.permissions() if each["kind"] == "ClusterRole")
    rules = [rule for rule in role["rules"] if "pods" not in rule["resources"]]
    async with bench.client() as client, bench.client(name="operator", rules=rules) as limited:
        await bench.install(client)
        log = Log()
        monkeypatch.setattr(main, "report", log.write)
        async with meanwhile(main.Operator(Informer(limited), options)):
            await log.until("PathwaysJobs: controlling them")
            await objects.create(client, PATHWAYS_JOBS, training("a"))
            await bench.until(client, "a", bool, JOBSETS)
            await leases.create(client, await bench.proxy(client, "dead"), seconds=1)
            await log.until("(session dead of jane): its lease")
    # Only the look for other controllers needs them; it says so once.
    refused = [line for line in log if "not allowed to list pods" in line]
    assert [line.split(": ")[:2] for line in refused] == [["PathwaysJobs", "cannot look for other controllers"]]


def test_the_manifests_need_no_edit_and_close_what_is_not_needed():
    made = {each["kind"]: each for each in installation.manifests("r/i:1", service_monitor=True)}
    deployment = made["Deployment"]["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    assert deployment["replicas"] == 2
    assert made["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert made["Namespace"]["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    ports = [each["containerPort"] for each in container["ports"]]
    assert container["args"] == [f"--metrics-port={ports[0]}"]
    assert {container[kind]["httpGet"]["port"] for kind in ("livenessProbe", "readinessProbe")} == set(ports)
    (rule,) = made["NetworkPolicy"]["spec"]["ingress"]
    assert [each["port"] for each in rule["ports"]] == ports
    assert made["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == made["Service"]["spec"]["ports"][0]["name"]
    # Else Prometheus replaces a session's namespace and service by those of the operator.
    assert made["ServiceMonitor"]["spec"]["endpoints"][0]["honorLabels"]
    # All of them are about the pods of the Deployment.
    labels = deployment["template"]["metadata"]["labels"].items()
    for selector in (
        deployment["selector"]["matchLabels"],
        made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        made["Service"]["spec"]["selector"],
    ):
        assert selector.items() <= labels


def test_the_definition_and_the_rest_are_printed_apart():
    def kinds(*arguments):
        done = CliRunner().invoke(cli, ["operator", "manifests", *arguments])
        assert done.exit_code == 0, done.output
        return [each["kind"] for each in yaml.safe_load_all(done.stdout)]

    only, rest = kinds("--part", "definition"), kinds("--part", "operator", "--image", "r/i:1")
    assert only == ["CustomResourceDefinition"]
    assert "CustomResourceDefinition" not in rest
    assert kinds("--image", "r/i:1") == only + rest


async def test_the_manifests_give_the_operator_all_it_needs_and_no_more(bench, meanwhile, options):
    async with bench.client() as client:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pathways_jupyter", "operator", "manifests", "--image", "r/pathways-jupyter:1"),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
        made = {each["kind"]: each for each in yaml.safe_load_all(out)}
        assert made["CustomResourceDefinition"] == json.loads(json.dumps(definition.definition()))
        (container,) = made["Deployment"]["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "r/pathways-jupyter:1"

        # A user who has exactly the role's rules.
        rules = made["ClusterRole"]["rules"]
        await bench.install(client)
        async with (
            bench.client(name="operator", rules=rules) as limited,
            meanwhile(main.Operator(Informer(limited), options)),
        ):
            await objects.create(client, PATHWAYS_JOBS, training("a"))
            await bench.job_in(client, "a", "Pending")
        assert not [rule for rule in rules if "*" in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])]


def test_a_pod_that_a_user_has_labelled_as_a_controller_is_none():
    assert is_rival(RIVAL)
    job = [{**RIVAL["metadata"]["ownerReferences"][0], "apiVersion": "batch/v1", "kind": "Job"}]
    for owners in (job, []):
        assert not is_rival({**RIVAL, "metadata": {**RIVAL["metadata"], "ownerReferences": owners}})
