"""A lab from its start to its end: a real JupyterLab in a pod, reached through its forward, with a notebook on TPUs."""

import asyncio
import contextlib
import itertools
import json
import signal
import subprocess
import sys

import aiohttp
import pytest
import remote_kernel
import yaml
from permissions import IN_CLUSTER, documented_rules

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.kube import auth, objects, watch
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import CLAIMS, JOBS, LEASES, NETWORK_POLICIES, PODS
from pathways_jupyter.service import names
from pathways_jupyter.service.lab import lab_stream, lifecycle, manifests

pytestmark = pytest.mark.timeout(240)

DEADLINE = 100.0
NAME = manifests.lab_name(names.current_user(), "jane")
CELL = """
import pathways_jupyter, jax, jax.numpy as jnp
session = pathways_jupyter.connect(tpu="tpuv6e:2x2=1", wait=90)
print(float(jax.jit(jnp.sum)(jnp.arange(10.0))), jax.devices()[0].platform, session.record.data_path)
open("kept.txt", "w").write("kept")
"""


@pytest.fixture
async def admin(cluster):
    async with Client(auth.load(str(cluster))) as client:
        yield client


class Lab:
    """A running ``pathways-jupyter lab up``."""

    def __init__(self, machine):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pathways_jupyter", "lab", "up", "--local", "--name", "jane", "--json"],
            env=machine.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.url = json.loads(line)["url"]
        self.base, _, self.token = self.url.partition("/lab?token=")

    def close(self):
        """Interrupt it, as Ctrl-C does; returns its exit code and what it said."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, said

    @contextlib.asynccontextmanager
    async def page(self):
        """A browser's session with the server."""
        headers = {"Authorization": f"token {self.token}"}
        async with aiohttp.ClientSession(self.base, headers=headers) as page:
            yield page

    async def until_up(self):
        async with asyncio.timeout(DEADLINE), self.page() as page:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with page.get("/api/status") as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.1)

    async def run(self, code):
        """Run a cell in a new kernel, and return what it prints or raises."""
        async with asyncio.timeout(DEADLINE), self.page() as page, remote_kernel.started(page, "") as kernel:
            return await kernel.run(code)


KINDS = (*lifecycle._MADE, CLAIMS, JOBS, PODS, LEASES, NETWORK_POLICIES)
LABELS = (manifests.LAB_LABEL, names.SESSION_LABEL)


async def everything(client):
    """Return the objects of labs and of sessions, by kind."""
    found = {}
    for kind in KINDS:
        for labels in LABELS:
            for each in (await objects.list_(client, kind, namespace="default", labels=labels)).items:
                found.setdefault(kind.plural, []).append(each["metadata"]["name"])
    return found


async def until_gone(client, *kinds):
    async with asyncio.timeout(DEADLINE):
        for kind, labels in itertools.product((each for each in KINDS if each.plural in kinds), LABELS):
            await watch.until_gone(client, kind, namespace="default", labels=labels)


@pytest.mark.thorough
async def test_a_lab_runs_notebooks_next_to_the_tpus_and_leaves_nothing(machine, admin):
    def cli(*arguments, timeout=DEADLINE):
        return asyncio.to_thread(machine.cli, "lab", *arguments, "--local", "--name", "jane", timeout=timeout)

    lab = await asyncio.to_thread(Lab, machine)
    try:
        await lab.until_up()
        said = await lab.run(CELL)
        assert "45.0 tpu direct, through a unix socket" in said

        # The control plane is upgraded: the page's connections break, and new ones work.
        assert (await asyncio.to_thread(machine.cli, "local", "restart-api")).returncode == 0
        await lab.until_up()

        # The node is lost: the cluster makes another pod, and the same address leads to it.
        before = await lab_stream.current_pod(admin, "default", NAME)
        await objects.delete(admin, PODS, before["metadata"]["name"], namespace="default", grace_seconds=0)
        async with asyncio.timeout(DEADLINE):
            pod = None
            while pod is None or pod["metadata"]["uid"] == before["metadata"]["uid"]:
                await asyncio.sleep(0.1)
                pod = await lab_stream.current_pod(admin, "default", NAME)
        await lab.until_up()
        assert "kept" in await lab.run("print(open('kept.txt').read())")
        # The first pod's proxy went with it.
        await until_gone(admin, "leases", "networkpolicies")
    finally:
        code, said = await asyncio.to_thread(lab.close)
    assert code == 0
    assert "the lab keeps running" in said

    # The next one finds it, and ends with it.
    again = await asyncio.to_thread(Lab, machine)
    await again.until_up()
    assert again.token == lab.token
    down = await cli("down")
    assert down.returncode == 0, down.stderr
    await until_gone(admin, "jobs", "pods", "secrets")
    assert (await everything(admin)).keys() == {"persistentvolumeclaims"}
    down = await cli("down", "--delete-volume", "--json")
    assert json.loads(down.stdout)["removed"] == ["its home volume"]
    assert await everything(admin) == {}
    _, said = await asyncio.to_thread(again.process.communicate, timeout=DEADLINE)
    assert again.process.returncode == 0
    assert f"The lab {NAME} has ended." in said


async def test_a_lab_that_cannot_start_says_why(machine, admin):
    up = await asyncio.to_thread(machine.cli, "lab", "up", "--local", "--name", "broken", "--image", "nowhere/lab:7")
    assert up.returncode == 1
    assert "its image cannot be pulled (nowhere/lab:7)" in up.stderr
    await asyncio.to_thread(machine.cli, "lab", "down", "--local", "--name", "broken", "--delete-volume")
    assert "-broken" not in str(await everything(admin))


async def test_a_dry_run_prints_what_would_be_made_and_makes_nothing(machine, admin):
    dry = await asyncio.to_thread(
        machine.cli, "lab", "up", "--local", "--name", "dry", "--cpu", "8", "--memory", "32G", "--dry-run"
    )
    made = {each["kind"]: each for each in yaml.safe_load_all(dry.stdout)}
    assert set(made) == {
        *("ServiceAccount", "Role", "RoleBinding", "Secret", "PersistentVolumeClaim", "Job"),
    }
    (container,) = made["Job"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "8", "memory": "32G"}
    # Only the API server's forward leads to it.
    assert "--ip=127.0.0.1" in container["args"]
    assert "-dry" not in str(await everything(admin))


def grants(rules):
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_a_lab_gets_the_documented_role_and_no_more():
    spec = manifests.LabSpec("lab", "default", "image")
    assert grants(manifests.role(spec, direct=False)["rules"]) == grants(documented_rules())
    direct = grants(manifests.role(spec, direct=True)["rules"])
    assert direct == grants(documented_rules()) | grants(documented_rules(IN_CLUSTER))


def test_a_lab_is_named_after_its_user():
    assert manifests.lab_name("Jane.Doe@example.com") == "pathways-lab-jane-doe"
    assert manifests.lab_name("jane", "big") == "pathways-lab-jane-big"
    # Another user's lab has another name, also where both are cut off.
    long = [manifests.lab_name(user * 60, name) for user in "ab" for name in ("", "big", "x" * 24)]
    assert len(set(long)) == 6
    assert max(map(len, long)) <= names.MAX_JOB_NAME
    with pytest.raises(ConfigError, match="cannot be called"):
        manifests.lab_name("jane", "Not A Name")
    with pytest.raises(ConfigError, match="cannot be called"):
        manifests.lab_name("jane", "x" * 25)
