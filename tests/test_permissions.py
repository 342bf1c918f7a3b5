"""The documented Role is what is needed, and nothing more: held against what the API server is asked for."""

import asyncio
import contextlib
import copy
import dataclasses
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import holders
import psutil
import pytest
from pathways_jobs import headless, training
from permissions import (
    FAULTS,
    HOSTS,
    IN_CLUSTER,
    INSTALL,
    JOB_USER,
    LAB,
    PLATFORM,
    QUEUES,
    USER,
    Grant,
    as_rules,
    documented_grants,
)
from waits import wait_until
from watched_cluster import DEADLINE, TYPE, Watched

from pathways_jupyter.actions import logs
from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ApiError, ClusterError, ConnectionLost, PathwaysError
from pathways_jupyter.base.events import EventKind
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube import auth, objects, pods
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, LEASES, NETWORK_POLICIES, PATHWAYS_JOBS, PODS
from pathways_jupyter.kube.watch import until_gone, watch
from pathways_jupyter.local.node import programs
from pathways_jupyter.multihost import pod_hosts as hosts
from pathways_jupyter.service import (
    abandoned,
    checks,
    deployment,
    discovery,
    doctor,
    jobs,
    leases,
    names,
    permissions,
    queues,
    rollout,
)
from pathways_jupyter.service.clusterwatch import ClusterWatch
from pathways_jupyter.service.lab import lifecycle, manifests
from pathways_jupyter.service.lab.lab_stream import LabStream, current_pod
from pathways_jupyter.service.pathwaysjob import definition, submission
from pathways_jupyter.service.permissions import FAULT_NEEDS, INSTALL_NEEDS, PLATFORM_NEEDS
from pathways_jupyter.service.service_jobset import ServiceSpec
from pathways_jupyter.session import clusters, protocol, registry, sweep
from pathways_jupyter.session.kernel import spawn
from pathways_jupyter.session.protocol import Method
from pathways_jupyter.tunnel.carrier import PodPort
from pathways_jupyter.tunnel.outage import Outage
from pathways_jupyter.tunnel.relay import relay_container
from pathways_jupyter.tunnel.resumable_stream import RelayClient

ADMIN = "admin"


class Person:
    """A user of the cluster; every method returns the errors that the user saw.

    Each does a whole thing that the package does for people, with what these permissions allow.
    """

    def __init__(self, cluster: Watched, name: str, rules: list[dict] | None) -> None:
        self.cluster = cluster
        self.name = name
        self.rules = rules
        self.kubeconfig = cluster.kubeconfig(name, rules)
        self.events: list[str] = []
        """Output while connecting."""
        self.config = ConnectConfig(instances={TYPE: 1}, kubeconfig=self.kubeconfig)

    def client(self) -> Client:
        return Client(auth.load(self.kubeconfig))

    def admin(self) -> Client:
        """A client that may do everything, to set the scene and to tidy up."""
        return Client(auth.load(self.cluster.kubeconfig(ADMIN, None)))

    async def connect(self) -> list[str]:
        """Connects, reconnects and disconnects."""
        return await asyncio.to_thread(self._connect)

    def _connect(self) -> list[str]:
        link = spawn.supervisor()
        self.events = []
        try:
            asked = {"config": protocol.config_to_json(self.config), "kernel_pid": os.getpid()}
            link.answer(link.ask(Method.START, **asked), patience=DEADLINE)
            link.answer(link.ask(Method.RECONNECT), patience=DEADLINE)
            self.events = [event.message for event in link.events()]
            return [link.answer(link.ask(Method.DISCONNECT), patience=DEADLINE)["left"]]
        except PathwaysError as error:
            return [f"{error} {error.hint}"]
        finally:
            link.close(patience=DEADLINE)
            asyncio.run(self._forget(link.session))

    async def connect_in_pod(self) -> list[str]:
        """Connect from a pod, whose token this person has, directly."""
        async with self.admin() as admin:
            made = await started(admin, await objects.create(admin, PODS, notebook_pod(self.name)))
            url = urlsplit(self.cluster.url)
            try:
                kubeconfig = self.cluster.kubeconfig(self.name, self.rules, made)
                inside = copy.copy(self)
                inside.config = dataclasses.replace(self.config, kubeconfig=kubeconfig)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setenv("KUBERNETES_SERVICE_HOST", url.hostname)
                    patch.setenv("KUBERNETES_SERVICE_PORT", str(url.port))
                    said = await inside.connect()
                    self.events = inside.events
                    return said
            finally:
                await objects.delete(admin, PODS, made["metadata"]["name"], namespace=names.DEFAULT_NAMESPACE)

    async def attach(self) -> str:
        """Connect to the job of the settings, and disconnect; return what was left."""
        link, _ = await asyncio.to_thread(holders.start, self.config)
        try:
            return (await asyncio.to_thread(link.answer, link.ask(Method.DISCONNECT), patience=DEADLINE))["left"]
        finally:
            await asyncio.to_thread(link.close, patience=DEADLINE)

    async def _forget(self, session: str) -> None:
        """Remove what a person without the permission to remove it has left."""
        async with self.admin() as client:
            await sweep.remove(client, names.DEFAULT_NAMESPACE, session)
        if (record := registry.read(session)) is not None:
            registry.remove(record)

    async def doctor(self) -> list[str]:
        return [f"{each.message} {each.hint}" for each in await doctor.examine(self.config) if each.hint]

    async def read_logs(self) -> list[str]:
        """Read what a resource manager says, and follow it a little."""
        async with self.client() as client:
            try:
                place = await logs.find(client, names.DEFAULT_NAMESPACE, logs.RESOURCE_MANAGER)
                await logs.find(client, names.DEFAULT_NAMESPACE, logs.WORKER, which="0")
                lines = pods.logs(client, place.pod, namespace=place.namespace, container=place.container, follow=True)
                async with contextlib.aclosing(lines):
                    await anext(lines)
            except PathwaysError as error:
                return [f"{error} {error.hint}"]
        return []

    async def look(self) -> list[str]:
        """Open the sidebar, and sees there what changes."""
        shown: asyncio.Queue[dict] = asyncio.Queue()
        watch = ClusterWatch(auth.load(self.kubeconfig))
        watch.add(shown.put_nowait)
        try:
            async with self.admin() as admin:
                while True:
                    message = await shown.get()
                    if problem := message.get("problem"):
                        return [f"{problem['message']} {problem['hint']}"]
                    names_seen = {row["name"] for row in message.get("put", {}).get("jobs", ())}
                    if f"late-{self.name}" in names_seen:
                        return []
                    if message.get("watch") == "live":
                        await objects.create(admin, PATHWAYS_JOBS, pathways_job(f"late-{self.name}"))
        finally:
            await watch.close()

    async def sweep(self) -> list[str]:
        """Remove the proxy of a session that died, as `pathways-jupyter clean` does."""
        async with self.client() as client, self.admin() as admin:
            job = await objects.create(admin, JOBS, orphaned(self.name))
            try:
                await leases.create(admin, job, seconds=1)
                now = client.now
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(client, "now", lambda: now() + 3600)
                    return [each.error for each in await abandoned.sweep(client, names.DEFAULT_NAMESPACE)]
            except PathwaysError as error:
                return [f"{error} {error.hint}"]
            finally:
                await objects.delete(admin, JOBS, job["metadata"]["name"], namespace=names.DEFAULT_NAMESPACE)

    async def find(self) -> list[str]:
        """Find a service by its name."""
        async with self.client() as client:
            try:
                await discovery.find(client, names.DEFAULT_NAMESPACE, names.DEFAULT_SERVICE)
            except PathwaysError as error:
                return [f"{error} {error.hint}"]
        return []

    async def create_and_lose_the_answer(self) -> list[str]:
        """The connection breaks before the answer to a create: is the object there that was asked for?"""
        shown = []
        async with Forgetful(auth.load(self.kubeconfig)) as client:
            job = orphaned(f"{self.name}-lost")
            try:
                job = await objects.create(client, JOBS, job)
            except PathwaysError as error:
                shown.append(f"{error} {error.hint}")
            job["metadata"].setdefault("uid", "unknown")
            client.forgetful = True
            try:
                await leases.create(client, job)
            except PathwaysError as error:
                shown.append(f"{error} {error.hint}")
        async with self.admin() as admin:
            for resource in (LEASES, JOBS):
                await objects.delete(admin, resource, job["metadata"]["name"], namespace=names.DEFAULT_NAMESPACE)
        return shown

    async def run_on_hosts(self) -> list[str]:
        """Run a command on a host of a service, of which the user gives the name or nothing."""
        async with self.client() as client:
            try:
                for wanted in (names.DEFAULT_SERVICE, ""):
                    (target, *_) = await hosts.find(client, names.DEFAULT_NAMESPACE, service=wanted)
                channel = await hosts.PodConnection(client, target).start(["/bin/sh", "-c", "echo here"])
                said = await channel.read()
                await channel.close()
                assert said == b"here\n"
            except PathwaysError as error:
                return [f"{error} {error.hint}"]
        return []


class Forgetful(Client):
    """Loses the first answer."""

    forgetful = True

    async def post(self, path, body):
        answer = await super().post(path, body)
        if self.forgetful:
            self.forgetful = False
            raise ConnectionLost("The connection to the API server was lost.")
        return answer


def orphaned(name: str) -> dict:
    """The proxy Job of a session without a supervisor; it never starts a pod."""
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.SESSION_LABEL: name}
    container = {"name": "main", "image": "python:3", "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": f"abandoned-{name}", "namespace": names.DEFAULT_NAMESPACE, "labels": labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "template": template},
    }


async def started(client: Client, pod: dict) -> dict:
    """Wait until the kubelet has written into a pod where its ports are."""
    metadata = pod["metadata"]
    changes = watch(client, PODS, namespace=metadata["namespace"], name=metadata["name"])
    async with contextlib.aclosing(changes):
        async for change in changes:
            if change.object and names.SOCKETS_ANNOTATION in (change.object["metadata"].get("annotations") or {}):
                return change.object
    raise AssertionError("the pod was never started")


def notebook_pod(name: str) -> dict:
    metadata = {"name": f"notebook-{name}", "namespace": names.DEFAULT_NAMESPACE, "labels": {"notebook": name}}
    container = {"name": "main", "image": "python:3", "command": ["sleep", "600"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pathways_job(name: str) -> dict:
    """A job that does not start anything."""
    job = headless(name)
    job["metadata"]["annotations"] = {definition.START_SUSPENDED_ANNOTATION: "true"}
    return job


BATCH, LEASE, JOBSET = JOBS.group, LEASES.group, objects.JOBSETS.group
WITHOUT = {
    (BATCH, "jobs", "create"): Person.connect,
    (BATCH, "jobs", "get"): Person.create_and_lose_the_answer,
    (BATCH, "jobs", "list"): Person.look,
    (BATCH, "jobs", "watch"): Person.look,
    (BATCH, "jobs", "delete"): Person.sweep,
    (LEASE, "leases", "create"): Person.connect,
    (LEASE, "leases", "get"): Person.create_and_lose_the_answer,
    (LEASE, "leases", "list"): Person.sweep,
    (LEASE, "leases", "patch"): Person.connect,
    (LEASE, "leases", "delete"): Person.sweep,
    ("", "pods", "get"): Person.read_logs,
    ("", "pods", "list"): Person.connect,
    ("", "pods", "watch"): Person.connect,
    ("", "pods/log", "get"): Person.read_logs,
    ("", "pods/portforward", "get"): Person.connect,
    ("", "pods/portforward", "create"): Person.connect,
    (JOBSET, "jobsets", "get"): Person.find,
    (JOBSET, "jobsets", "list"): Person.look,
    (JOBSET, "jobsets", "watch"): Person.look,
    # The sidebar shows everything else without PathwaysJobs, as it does where there are none.
    (PATHWAYS_JOBS.group, "pathwaysjobs", "list"): Person.doctor,
    (PATHWAYS_JOBS.group, "pathwaysjobs", "watch"): Person.doctor,
    (NETWORK_POLICIES.group, "networkpolicies", "list"): Person.doctor,
}
"""The actions of a user who lacks a permission; each must report that."""


def missing_each(grants: Iterable[Grant]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("missing", sorted(grants), ids=lambda grant: f"{grant[2]} {grant[1]}")


def lacking(cluster: Watched, name: str, grants: set[Grant], missing: Grant) -> Person:
    """A person with all of `grants` but one."""
    _, resource, verb = missing
    return Person(cluster, f"{name}-{verb}-{resource.replace('/', '-')}", as_rules(grants - {missing}))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Watched]:
    # Not pytest's own directory: its names are long, and a socket's path must be short.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="pj-") as name:
        patch.setenv("JUPYTER_RUNTIME_DIR", f"{name}/rt")
        patch.setenv("HOME", name)
        patch.delenv("KUBECONFIG", raising=False)
        directory = Path(name) / "cluster"
        directory.mkdir()
        with Watched(directory) as cluster:
            yield cluster


@pytest.mark.timeout(400)
async def test_everything_works_with_the_documented_role_and_needs_all_of_it(cluster):
    person = Person(cluster, "jane", as_rules(documented_grants()))
    for does in (*dict.fromkeys(WITHOUT.values()),):
        async with asyncio.timeout(DEADLINE):
            shown = [said for said in await does(person) if said]
        if does is Person.doctor:
            shown = [said for said in shown if "Not allowed" in said]
        assert not shown, does.__name__
    assert cluster.asked["jane"] == documented_grants()


def test_every_documented_permission_has_something_that_needs_it():
    assert WITHOUT.keys() == documented_grants()


@missing_each(WITHOUT)
async def test_without_a_permission_what_needs_it_says_which_one_and_the_doctor_how_to_get_it(cluster, missing):
    _, resource, verb = missing
    person = lacking(cluster, "no", documented_grants(), missing)
    async with asyncio.timeout(DEADLINE):
        shown = await WITHOUT[missing](person)
        (found,) = [said for said in await person.doctor() if "Not allowed" in said]
    assert any(f"llowed to {verb} {resource}" in said for said in shown), shown
    assert any("pathways-jupyter manifests roles" in said and "kubectl create rolebinding" in said for said in shown)
    assert f"Not allowed to {verb} {resource} in namespace default" in found
    apply = "pathways-jupyter manifests roles pathways-jupyter-user | kubectl apply -n default -f -"
    bind = "kubectl create rolebinding NAME --role=pathways-jupyter-user --user=USER -n default"
    assert f"{apply}, and then {bind}." in found


async def test_commands_on_hosts_need_what_is_documented_and_nothing_else(cluster):
    person = Person(cluster, "hanna", as_rules(documented_grants(HOSTS)))
    async with asyncio.timeout(DEADLINE):
        assert await person.run_on_hosts() == []
    assert cluster.asked["hanna"] == documented_grants(HOSTS)


@missing_each(documented_grants(HOSTS))
async def test_without_a_permission_on_hosts_the_command_says_which_one(cluster, missing):
    _, resource, verb = missing
    async with asyncio.timeout(DEADLINE):
        shown = await lacking(cluster, "hosts", documented_grants(HOSTS), missing).run_on_hosts()
    assert any(f"llowed to {verb} {resource}" in said for said in shown), shown


def queued_job(name: str) -> dict:
    """A Job that is too large for the quota of the cluster's queue."""
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "5000"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    about = {"name": name, "namespace": names.DEFAULT_NAMESPACE, "labels": {names.QUEUE_LABEL: "team"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": {"suspend": True, "template": template}}


def lab_of(name: str) -> manifests.LabSpec:
    image = programs.reference(programs.LAB_IMAGE)
    return manifests.LabSpec(name=f"lab-{name}", namespace=names.DEFAULT_NAMESPACE, image=image)


@pytest.mark.thorough
async def test_a_lab_needs_what_is_documented_and_nothing_else(cluster):
    person = Person(cluster, "lara", as_rules(documented_grants() | documented_grants(LAB)))
    spec = lab_of("lara")
    async with asyncio.timeout(DEADLINE), person.client() as client:
        assert await lifecycle.up(client, spec)
        reload = clusters.reloader(lambda: person.config, client)
        async with lifecycle.forwarded(client, spec.namespace, spec.name, reload=reload):
            assert await lifecycle.up(client, spec)
        ending = asyncio.create_task(lifecycle.until_ended(client, spec.namespace, spec.name))
        assert "its home volume" in await lifecycle.down(client, spec.namespace, spec.name, delete_volume=True)
        await ending
    assert documented_grants(LAB) <= cluster.asked["lara"]
    assert cluster.asked["lara"] <= documented_grants() | documented_grants(LAB)


@pytest.mark.thorough
async def test_another_user_of_the_namespace_does_not_get_into_a_lab(cluster):
    """They may forward ports of its pods, as each user of a service may."""
    owner = Person(cluster, "owen", as_rules(documented_grants() | documented_grants(LAB)))
    other = Person(cluster, "olga", as_rules(documented_grants()))
    spec = lab_of("owen")
    async with asyncio.timeout(DEADLINE), owner.client() as mine, other.client() as client:

        async def reload(error):
            raise error

        await lifecycle.up(mine, spec)
        try:
            # Once its relay listens.
            await (await LabStream.open(mine, spec.namespace, spec.name, reload=reload)).close()
            with pytest.raises(ApiError, match="not allowed to get secrets"):
                await LabStream.open(client, spec.namespace, spec.name, reload=reload)
            pod = (await current_pod(client, spec.namespace, spec.name))["metadata"]["name"]
            port = PodPort(client, spec.namespace, pod, relay_container.port_of(manifests.KERNELS_PORT))
            guess = RelayClient(port, bytes(32), 5.0, Outage(print, print, reload))
            with pytest.raises(ClusterError, match="The connection to the relay was closed"):
                await guess.open()
            await guess.close()
        finally:
            await lifecycle.down(mine, spec.namespace, spec.name, delete_volume=True)


async def test_without_a_permission_for_a_lab_nothing_is_made_and_doctor_finds_it_first(cluster):
    for missing in sorted(documented_grants(LAB)):
        _, resource, verb = missing
        everything = documented_grants() | documented_grants(LAB)
        person = lacking(cluster, "lab-no", everything, missing)
        async with person.client() as client:
            with pytest.raises(PathwaysError, match=f"Not allowed to {verb} {resource}") as refused:
                await lifecycle.up(client, lab_of("none"))
            assert "--role=pathways-jupyter-" in refused.value.hint
            found = await asyncio.gather(
                *(permissions.check(client, "default", need) for need in permissions.LAB_NEEDS)
            )
        assert any(f"Not allowed to {verb} {resource}" in each.message for each in found)
        asked = cluster.asked.get(person.name, set())
        assert asked <= everything
        assert not any(verb == "create" for _, _, verb in asked)
    found = await doctor.examine(person.config, further=permissions.LAB_NEEDS)
    assert any(f"Not allowed to {verb} {resource}" in each.message for each in found)


async def test_waiting_in_a_queue_needs_what_is_documented_and_nothing_else(cluster):
    needed = documented_grants(QUEUES)
    person = Person(cluster, "quentin", as_rules(documented_grants() | needed))
    person.config = dataclasses.replace(person.config, queue="team", priority="low")
    async with asyncio.timeout(DEADLINE), person.admin() as admin, person.client() as client:
        assert await person.connect() == [""]
        found = await checks.queue(client, names.DEFAULT_NAMESPACE, "team")
        assert "is not known" in found[-1].message
        job = await objects.create(admin, JOBS, queued_job("blocked"))
        wait = queues.until_admitted(client, job)
        async with contextlib.aclosing(wait):
            while "Position 1" not in await anext(wait):
                pass
        await queues.set_active(client, job, active=False)
        await objects.delete(admin, JOBS, "blocked", namespace=names.DEFAULT_NAMESPACE)
    known = {("", "configmaps", "get"), ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "get")}
    asked = {each for each in cluster.asked["quentin"] if "kueue" in each[0]} - known
    assert asked == needed


@missing_each(documented_grants(QUEUES))
async def test_the_doctor_names_a_missing_permission_for_queues(cluster, missing):
    _, resource, verb = missing
    person = lacking(cluster, "queue-no", documented_grants() | documented_grants(QUEUES), missing)
    found = await doctor.examine(dataclasses.replace(person.config, queue="team"))
    (lacks,) = [each for each in found if f"Not allowed to {verb} {resource}" in each.message]
    assert "manifests roles pathways-jupyter-queues | kubectl apply" in lacks.hint


CREATE_POLICY = (NETWORK_POLICIES.group, "networkpolicies", "create")


async def test_a_notebook_in_the_cluster_needs_its_own_role_to_connect_directly_and_takes_the_tunnel_without(cluster):
    assert documented_grants(IN_CLUSTER) == {CREATE_POLICY}
    assert CREATE_POLICY not in documented_grants()
    inside = Person(cluster, "inside", as_rules(documented_grants() | documented_grants(IN_CLUSTER)))
    outside = Person(cluster, "outside", as_rules(documented_grants()))
    async with asyncio.timeout(DEADLINE):
        assert await inside.connect_in_pod() == [""]
        assert await outside.connect_in_pod() == [""]
    assert CREATE_POLICY in cluster.asked["inside"]
    assert CREATE_POLICY not in cluster.asked["outside"]
    assert not any("directly" in said for said in inside.events)
    assert any(
        "This account is not allowed to create networkpolicies in namespace default" in said
        and "Role pathways-jupyter-in-cluster" in said
        for said in outside.events
    ), outside.events
    found = await doctor.examine(outside.config, further=permissions.IN_CLUSTER_NEEDS)
    (missing,) = [each for each in found if "Not allowed to create networkpolicies" in each.message]
    assert missing.hint == permissions.advise(IN_CLUSTER, names.DEFAULT_NAMESPACE)


async def test_a_pod_that_may_not_read_itself_takes_the_tunnel(cluster):
    person = Person(cluster, "selfless", as_rules(documented_grants() - {("", "pods", "get")}))
    async with asyncio.timeout(DEADLINE):
        assert await person.connect_in_pod() == [""]
    assert CREATE_POLICY not in cluster.asked["selfless"]


async def test_without_the_proxys_log_a_session_connects_without_waiting_for_it_and_says_so(cluster):
    person = Person(cluster, "blind", as_rules(documented_grants() - {("", "pods/log", "get")}))
    link, record = await asyncio.to_thread(holders.start, person.config)
    shown = [event.message for event in link.events()]
    assert (record["state"], record["slices"]) == ("connected", [])
    (warning,) = [event.message for event in link.events() if event.kind is EventKind.WARNING]
    assert "a slice that goes down will not be reported: You are not allowed to get pods/log" in warning
    # What is said when nothing came of waiting for the log is not.
    assert not any("has not said that its slices are placed" in message for message in shown)
    assert any("Whether the slices are placed is not known" in message for message in shown)
    assert await asyncio.to_thread(link.close, patience=DEADLINE)


async def test_without_renewing_connecting_is_refused_with_the_reason_and_nothing_stays(cluster):
    person = Person(cluster, "forgetful", as_rules(documented_grants() - {(LEASE, "leases", "patch")}))
    (shown,) = await person.connect()
    assert "The proxy's Lease cannot be renewed: You are not allowed to patch leases" in shown
    assert "removed, 60 s after it was made" in shown
    async with person.admin() as admin:
        assert not (await objects.list_(admin, LEASES, namespace=names.DEFAULT_NAMESPACE)).items


async def test_a_session_whose_job_was_deleted_without_its_pod_says_who_can_delete_the_pod(cluster):
    person = Person(cluster, "orla", as_rules(documented_grants()))
    link, record = await asyncio.to_thread(holders.start, person.config)
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
    async with person.admin() as admin:
        await admin.delete(JOBS.item(names.DEFAULT_NAMESPACE, record["job"]), body=options)
        changes = watch(admin, PODS, namespace=names.DEFAULT_NAMESPACE, name=record["pod"])
        async with asyncio.timeout(DEADLINE), contextlib.aclosing(changes):
            async for change in changes:
                if change.object and not change.object["metadata"].get("ownerReferences"):
                    break
        left = (await asyncio.to_thread(link.answer, link.ask(Method.DISCONNECT), patience=DEADLINE))["left"]
        assert f"Pod {record['pod']} in namespace default has lost its Job" in left
        assert "You are not allowed to delete pods" in left
        assert "Where an operator runs, it deletes the pod" in left
        assert await asyncio.to_thread(link.close, patience=DEADLINE)
        await person._forget(record["id"])
        async with asyncio.timeout(DEADLINE):
            await until_gone(
                admin, PODS, namespace=names.DEFAULT_NAMESPACE, labels=f"{names.SESSION_LABEL}={record['id']}"
            )


def deployment_of(name: str) -> ServiceSpec:
    """A service for nodes that the cluster's own service uses."""
    wanted = {"name": name, "tpu": TYPE, "local": True, "skip_checks": True}
    return deployment.plan(wanted, jax=programs.tags(names.SERVER_IMAGE)[0].removeprefix("jax-"))


async def deploy_and_delete(person: Person, name: str) -> list[str]:
    """Deploy a service that gets no nodes, follow another one, and delete the new one; return what was said."""
    said: list[str] = []
    async with person.client() as client:
        try:
            async for step in deployment.run(client, deployment_of(name), skip_checks=True, seconds=2):
                said += [step.message, getattr(step, "hint", "")]
        except PathwaysError as error:
            said += [f"{error} {error.hint}"]
        try:
            async for step in rollout.follow(client, names.DEFAULT_NAMESPACE, names.DEFAULT_SERVICE):
                said.append(step.message)
            found, _, _ = await deployment.find_to_delete(client, names.DEFAULT_NAMESPACE, name)
            proxy = orphaned(name)
            proxy["metadata"]["labels"][names.SERVICE_LABEL] = name
            async with person.admin() as admin:
                await objects.create(admin, JOBS, proxy)
            await deployment.remove(client, found)
        except PathwaysError as error:
            said += [f"{error} {error.hint}"]
    return said


async def test_a_platform_role_is_what_deploying_needs(cluster):
    person = Person(cluster, "paula", as_rules(documented_grants(PLATFORM)))
    async with asyncio.timeout(DEADLINE):
        said = await deploy_and_delete(person, "paulas")
    assert any("Service paulas is not ready after 2 s" in each for each in said), said
    assert [each for each in said if "llowed to" in each] == [], said
    assert cluster.asked["paula"] == documented_grants(PLATFORM)


async def test_the_doctor_checks_the_documented_platform_role_and_installing_the_operator(cluster):
    person = Person(cluster, "pia", as_rules(documented_grants(USER) | documented_grants(PLATFORM)))
    found = await doctor.examine(person.config, further=PLATFORM_NEEDS)
    missing = [each for each in found if each.name.startswith("permission") and each.level is not Tone.OK]
    assert {each.name for each in missing} == {f"permission {each}" for each in INSTALL_NEEDS}
    definitions = next(each for each in missing if "customresourcedefinitions" in each.name)
    assert definitions.message == (
        "Not allowed to create, get, patch customresourcedefinitions, which is needed to install the operator."
    )
    assert definitions.hint == (
        "Ask a cluster administrator for pathways-operator-install: pathways-jupyter manifests roles "
        "pathways-operator-install | kubectl apply -f -, and then kubectl create clusterrolebinding NAME "
        "--clusterrole=pathways-operator-install --user=USER."
    )
    person = Person(cluster, "ida", as_rules(documented_grants(INSTALL)))
    async with person.client() as client:
        allowed = await asyncio.gather(*(permissions.check(client, "default", need) for need in INSTALL_NEEDS))
    assert {each.level for each in allowed} == {Tone.OK}


async def test_the_doctor_checks_the_documented_role_for_faults(cluster):
    documented = documented_grants(FAULTS)
    person = Person(cluster, "frida", as_rules(documented - {("", "nodes", "patch")}))
    async with person.client() as client:
        found = await asyncio.gather(*(permissions.check(client, "default", need) for need in FAULT_NEEDS))
    (missing,) = [each for each in found if each.level is not Tone.OK]
    assert missing.message == "Not allowed to patch nodes, which is needed to cordon and uncordon nodes."
    assert missing.hint == permissions.advise(FAULTS, "")


async def test_without_the_right_to_create_a_service_deploying_says_so_and_leaves_nothing(cluster):
    rules = documented_grants(PLATFORM) - {(JOBSET, "jobsets", "create")}
    person = Person(cluster, "peter", as_rules(rules))
    async with asyncio.timeout(DEADLINE):
        said = await deploy_and_delete(person, "peters")
    assert any("Not allowed to create jobsets in namespace default" in each for each in said), said
    assert permissions.advise(PLATFORM, names.DEFAULT_NAMESPACE) in said, said
    async with person.admin() as admin:
        policies = await objects.list_(admin, NETWORK_POLICIES, namespace=names.DEFAULT_NAMESPACE)
    assert "peters-resource-manager" not in {each["metadata"]["name"] for each in policies.items}


# Jobs.


async def use_jobs(person: Person) -> None:
    """Do all that docs/jobs.md has with a PathwaysJob, and with a job that is a JobSet."""
    place = {"namespace": names.DEFAULT_NAMESPACE}
    async with person.client() as client:
        await submission.apply(client, training(f"{person.name}-dry", "true"), dry_run=True, **place)
        for as_jobset in (False, True):
            name = f"{person.name}-{'set' if as_jobset else 'job'}"
            # Applying it again changes its labels.
            for _ in range(2):
                await submission.apply(client, headless(name, slices=1), as_jobset=as_jobset, **place)
            kind = objects.JOBSETS if as_jobset else PATHWAYS_JOBS
            async with contextlib.aclosing(jobs.follow(client, name, **place)) as states:
                await anext(states)
                # It lists first, and a quick job may have settled before it watches.
                watches = (kind.group, kind.plural, "watch")
                await asyncio.to_thread(wait_until, lambda: watches in person.cluster.asked[person.name])  # noqa: B023
            async with contextlib.aclosing(jobs.until_settled(client, name, **place)) as states:
                assert jobs.idles([info async for info in states][-1])
            assert name in {each.name for each in await jobs.list_jobs(client, names.DEFAULT_NAMESPACE)}
            assert (await jobs.details(client, name, **place)).pods
            async with contextlib.aclosing(jobs.log(client, name, container="rm", tail=1, **place)) as lines:
                assert [line async for line in lines]
            person.config = dataclasses.replace(person.config, instances={}, job=name)
            assert await person.attach() == ""
            await jobs.suspend(client, name, **place)
            await jobs.suspend(client, name, suspended=False, **place)
            assert await jobs.delete(client, name, **place)


async def test_jobs_need_what_is_documented_and_nothing_else(cluster):
    person = Person(cluster, "judy", as_rules(documented_grants(JOB_USER)))
    async with asyncio.timeout(2 * DEADLINE):
        await use_jobs(person)
    assert cluster.asked["judy"] == documented_grants(JOB_USER)


async def test_the_doctor_checks_the_documented_role_for_jobs(cluster):
    person = Person(cluster, "jack", as_rules(documented_grants()))
    found = await doctor.examine(person.config, further=permissions.JOB_NEEDS)
    missing = [each for each in found if each.name.startswith("permission") and each.level is not Tone.OK]
    (about_jobs,) = [each for each in missing if "create, get, patch, delete pathwaysjobs" in each.message]
    assert about_jobs.hint == permissions.advise(JOB_USER, names.DEFAULT_NAMESPACE)
    assert about_jobs.level is Tone.WARN, "connecting needs none of it"


async def test_a_job_that_is_not_there_is_said_to_be_missing_without_the_permission_for_events(cluster):
    events = {("", "events", verb) for verb in ("list", "watch")}
    person = Person(cluster, "eve", as_rules(documented_grants(JOB_USER) - events))
    async with person.admin() as admin, person.client() as client:
        with pytest.raises(PathwaysError, match="There is no job nothing in namespace default"):
            await jobs.details(client, "nothing", namespace=names.DEFAULT_NAMESPACE)
        await objects.create(admin, PATHWAYS_JOBS, pathways_job("eves"))
        shown = await jobs.details(client, "eves", namespace=names.DEFAULT_NAMESPACE)
        assert "Events are not shown. You are not allowed to list events" in shown.unread
        await objects.delete(admin, PATHWAYS_JOBS, "eves", namespace=names.DEFAULT_NAMESPACE)


# All Roles.


@pytest.mark.thorough
async def test_slices_are_taken_from_a_silent_session_with_the_documented_role_and_it_learns_of_it(cluster):
    """Also what is refused without an error: the note for the one who comes back would be lost."""
    holder, taker = (Person(cluster, each, as_rules(documented_grants())) for each in ("hugo", "tess"))
    held = dataclasses.replace(holder.config, instances={TYPE: 2}, relay=True, lease_seconds=2.0)
    link, record = await asyncio.to_thread(holders.start, held)
    links, supervisor = [link], psutil.Process(record["pid"])
    supervisor.suspend()
    try:
        taking, _ = await asyncio.to_thread(holders.start, dataclasses.replace(taker.config, wait=DEADLINE))
        links.insert(0, taking)
        assert any("Reclaimed slices from" in event.message for event in taking.events())
        since = link.count
        supervisor.resume()
        lost = await asyncio.to_thread(
            lambda: next(event for event in link.watch(since) if event.kind is EventKind.PROXY_LOST)
        )
        assert "Its slices were taken by" in lost.message
    finally:
        supervisor.resume()
        for each in links:
            await asyncio.to_thread(each.close, patience=DEADLINE)
            await holder._forget(each.session)
    for person in (holder, taker):
        assert cluster.asked[person.name] <= documented_grants()


NEEDS = (
    *permissions.NEEDS, *permissions.IN_CLUSTER_NEEDS, *permissions.QUEUE_NEEDS, *permissions.JOB_NEEDS,
    *permissions.FAULT_NEEDS, *permissions.LAB_NEEDS, *permissions.PLATFORM_NEEDS, *permissions.SERVICE_NEEDS,
)  # fmt: skip


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: f"{need.role} {need}")
def test_the_role_that_is_advised_grants_what_is_missing(need):
    granted = documented_grants(need.role)
    assert {(need.resource.group, str(need), verb) for verb in need.verbs} <= granted


def test_nothing_was_requested_that_no_role_grants(cluster):
    """Of all who acted above, also where they were refused and it was not shown."""
    of_administrators = {
        # Whether Kueue handles JobSets; without them it is said to be unknown.
        ("", "configmaps", "get"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "get"),
        # A pod without its Job, which is named to the user, and which the operator deletes.
        ("", "pods", "delete"),
    }
    granted = set().union(*map(documented_grants, permissions.BY_ROLE)) | of_administrators
    # The operator has a ClusterRole of its own.
    others = {ADMIN, "robot", "pathways-operator"}
    people = {name: asked for name, asked in cluster.asked.items() if name not in others}
    unknown = {name: asked - granted for name, asked in people.items()}
    assert not {name: asked for name, asked in unknown.items() if asked}
