import asyncio
import os
import sys

from program_log import Log
from waits import wait_until

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.informer import Informer
from pathways_jupyter.kube.objects import JOBS
from pathways_jupyter.operator.main import report
from pathways_jupyter.operator.sweeper import Sweeper
from pathways_jupyter.service import leases

DEADLINE = 60.0


def sweeper(client, interval, say):
    return Sweeper(Informer(client), interval=interval, say=say)


async def until_jobs(bench, client, names):
    watch = bench.store.watch(bench.of(JOBS))
    try:
        async with asyncio.timeout(DEADLINE):
            while {job["metadata"]["name"] for job in (await objects.list_(client, JOBS)).items} != names:
                await watch.batch()
    finally:
        watch.close()


async def test_the_operator_goes_on_after_the_server_restarted(bench, meanwhile, capsys):
    async with bench.client() as client, meanwhile(sweeper(client, 0.5, report)):
        dead = await bench.proxy(client, "dead")
        await bench.server.stop()
        await bench.server.start()
        await leases.create(client, dead, seconds=1)
        await until_jobs(bench, client, set())
    assert "session dead of jane" in capsys.readouterr().out


async def test_a_sweeper_that_may_not_read_leases_says_so_and_sweeps_nothing(bench, meanwhile):
    rules = [{"apiGroups": ["batch", ""], "resources": ["jobs", "pods"], "verbs": ["list", "watch", "delete"]}]
    lines = Log()
    async with bench.client(name="limited", rules=rules) as limited, meanwhile(sweeper(limited, 0.1, lines.write)):
        await lines.until("You are not allowed to list leases")
    assert len(lines) == 1


async def test_a_proxy_that_never_got_a_lease_is_found(bench, meanwhile, monkeypatch):
    monkeypatch.setattr(leases, "DEFAULT_SECONDS", 1.0)
    async with bench.client() as client, meanwhile(sweeper(client, 0.5, report)):
        await bench.proxy(client, "unleased")
        await until_jobs(bench, client, set())


async def start(bench, *arguments):
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "pathways_jupyter.operator.main",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": bench.kubeconfig(), "PYTHONUNBUFFERED": "1"},
    )


async def test_the_program_sweeps_once_when_asked_to(bench):
    async with bench.client() as client:
        dead = await bench.proxy(client, "dead")
        lease = await leases.create(client, dead, seconds=1)
        await asyncio.to_thread(wait_until, lambda: leases.is_stale(lease, client.now()))
        process = await start(bench, "--once", "--namespace", "default")
        out, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
        assert process.returncode == 0
        assert f"deleted Job default/{dead['metadata']['name']}" in out.decode()


async def test_what_it_may_not_delete_is_not_said_to_be_deleted(bench):
    rules = [{"apiGroups": ["batch", "coordination.k8s.io"], "resources": ["jobs", "leases"], "verbs": ["list"]}]
    async with bench.client() as client:
        dead = await bench.proxy(client, "dead")
        lease = await leases.create(client, dead, seconds=1)
        await asyncio.to_thread(wait_until, lambda: leases.is_stale(lease, client.now()))
        kubeconfig = bench.kubeconfig(name="reader", rules=rules)
        process = await start(bench, "--once", "--namespace", "default", "--kubeconfig", kubeconfig)
        out, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
        assert process.returncode == 1
        (line,) = [each for each in out.decode().splitlines() if dead["metadata"]["name"] in each]
        assert (
            f"cannot delete Job default/{dead['metadata']['name']} (session dead of jane): You are not allowed" in line
        )


async def test_it_is_a_command_too(bench):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pathways_jupyter", "operator", "run", "--once", "--kubeconfig", bench.kubeconfig()),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert (process.returncode, b"sweeping all namespaces of x" in out) == (0, True)
    usage = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pathways_jupyter", "operator", "run", "--help"), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(usage.communicate(), DEADLINE)
    assert b"usage: pathways-jupyter operator" in out


async def test_a_program_without_a_cluster_says_so(tmp_path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pathways_jupyter.operator.main", "--kubeconfig", str(tmp_path / "missing"),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, err = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode == 1
    assert b"There is no kubeconfig" in err
