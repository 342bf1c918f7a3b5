"""A notebook that runs in a pod of the cluster reaches its proxy without a tunnel, as its service account."""

import asyncio
import contextlib
import json

import pytest
from kinds import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from pathways_jobs import headless
from permissions import IN_CLUSTER, documented_rules

from pathways_jupyter.kube import auth, objects, pods
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBS, NETWORK_POLICIES, PATHWAYS_JOBS, PODS
from pathways_jupyter.kube.watch import until_gone, watch
from pathways_jupyter.service import jobs, names
from pathways_jupyter.service.pathwaysjob import submission

DEADLINE = 100.0
JOB_RULES = [{"apiGroups": [PATHWAYS_JOBS.group], "resources": [PATHWAYS_JOBS.plural], "verbs": ["get"]}]
"""Permissions for attaching to a job beside the documented Role."""
SCRIPT = """
import json, sys, time
import jax, jax.numpy as jnp
import pathways_jupyter

options = json.loads(sys.argv[1])
slices = {} if "job" in options else {"tpu": "tpuv6e:2x2=1"}
session = pathways_jupyter.connect(progress=False, wait=90, **slices, **options)
total = float(jax.jit(jnp.sum)(jnp.arange(10.0)))
report = {"total": total, "platform": jax.devices()[0].platform, "path": session.record.data_path}
print(json.dumps(report | {"session": session.id}), flush=True)
if not options:
    time.sleep(600)
session.disconnect()
"""


async def remove(client, name):
    for kind in (PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS):
        await objects.delete(client, kind, name, namespace="default", grace_seconds=0)


@pytest.fixture
async def admin(cluster):
    async with Client(auth.load(str(cluster))) as client:
        yield client


@pytest.fixture
async def notebook_pod(admin):
    """Start pods that run the script with connect's options, as an account with these rules and no others."""
    made = []

    async def start(name, rules, **options):
        made.append(name)
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        container = {"name": "main", "image": "python:3", "command": ["python", "-c", SCRIPT, json.dumps(options)]}
        spec = {"serviceAccountName": name, "restartPolicy": "Never", "containers": [container]}
        for kind, body in (
            (SERVICE_ACCOUNTS, {}),
            (ROLES, {"rules": rules}),
            (
                ROLE_BINDINGS,
                {"roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": name}, "subjects": [subject]},
            ),
            (PODS, {"spec": spec}),
        ):
            metadata = {"name": name, "labels": {"notebook": name}}
            about = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
            await objects.create(admin, kind, about | body, namespace="default")
        return await first_line(admin, name)

    yield start
    for name in made:
        await remove(admin, name)


async def first_line(client, name):
    """Return the script's output once it is connected; its whole output when that is not JSON."""
    async with contextlib.aclosing(watch(client, PODS, namespace="default", name=name)) as changes:
        async for change in changes:
            phase = ((change.object or {}).get("status") or {}).get("phase")
            if phase in {"Running", "Succeeded", "Failed"}:
                break
    lines = pods.logs(client, name, namespace="default", container="main", follow=True)
    said = []
    async with asyncio.timeout(DEADLINE), contextlib.aclosing(lines):
        async for line in lines:
            said.append(line)
            if line.startswith("{"):
                return json.loads(line)
    raise AssertionError("\n".join(said))


@pytest.mark.thorough
async def test_a_pod_connects_directly_and_its_proxy_ends_with_it(admin, notebook_pod):
    said = await notebook_pod("direct", [*documented_rules(), *documented_rules(IN_CLUSTER)])
    assert (said["total"], said["platform"]) == (45.0, "tpu")
    assert said["path"] == "direct, through a unix socket"
    labels = f"{names.SESSION_LABEL}={said['session']}"
    (policy,) = (await objects.list_(admin, NETWORK_POLICIES, namespace="default", labels=labels)).items
    (rule,) = policy["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {"notebook": "direct"}}}]
    # Not even its supervisor can clean up.
    await objects.delete(admin, PODS, "direct", namespace="default", grace_seconds=0)
    async with asyncio.timeout(DEADLINE):
        for kind in (JOBS, PODS, NETWORK_POLICIES, objects.LEASES):
            await until_gone(admin, kind, namespace="default", labels=labels)


async def test_the_tunnel_can_be_asked_for_and_needs_the_users_role_alone(notebook_pod):
    said = await notebook_pod("tunnelled", documented_rules(), tunnel=True)
    assert (said["total"], said["path"]) == (45.0, "a tunnel through the API server")


async def test_a_pod_attaches_to_a_job_by_a_tunnel_and_creates_nothing(admin, notebook_pod):
    await submission.apply(admin, headless("inside"), namespace="default")
    try:
        said = await notebook_pod("attached", [*documented_rules(), *JOB_RULES], job="inside")
        assert (said["total"], said["platform"]) == (45.0, "tpu")
        assert said["path"] == "a tunnel through the API server"
        labels = f"{names.SESSION_LABEL}={said['session']}"
        for kind in (JOBS, NETWORK_POLICIES, objects.LEASES):
            assert (await objects.list_(admin, kind, namespace="default", labels=labels)).items == ()
    finally:
        await jobs.delete(admin, "inside", namespace="default")
