"""The workers of a service as hosts, by exec, from the command line and from a notebook."""

import asyncio
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pathways_jobs import headless
from service_pods import SERVICE, pod
from waits import wait_until

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError, ServiceError
from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.tables import MAGIC
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.auth import load
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBSETS, PODS
from pathways_jupyter.magics.completion import complete
from pathways_jupyter.multihost import pod_hosts
from pathways_jupyter.service.pathwaysjob import expansion
from pathways_jupyter.service.service_jobset import ServiceSpec, manifest


def test_a_command_runs_in_the_workers_of_a_service(machine, cluster):
    code = machine.directory / "pods-code"
    code.mkdir()
    (code / "main.py").write_text("import os\nprint('slice', os.environ['SLICE'], 'worker', os.environ['WORKER'])\n")
    # An earlier test may have lost a worker.
    assert machine.cli("service", "wait", "pathways-cluster", "--local").returncode == 0
    done = machine.cli(
        *("multihost", "run", "--local", "--service", "pathways-cluster", "--dir", str(code)),
        *("--run-name", "in-pods", "--json", "--", "python3 main.py"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    hosts = json.loads(done.stdout)["hosts"]
    assert [(each["phase"], each["code"], each["last_line"]) for each in hosts] == [
        ("exited", 0, "slice 0 worker 0"),
        ("exited", 0, "slice 1 worker 0"),
    ]


def test_a_pod_that_goes_during_a_run_is_said_and_nothing_else(machine, cluster):
    assert machine.cli("service", "wait", "pathways-cluster", "--local").returncode == 0
    code = machine.directory / "lost-code"
    code.mkdir()

    async def delete_worker() -> None:
        async with Client(load(str(cluster))) as client:
            labels = "batch.kubernetes.io/job-name=pathways-cluster-worker-1"
            (pod,) = (await objects.list_(client, PODS, namespace="default", labels=labels)).items
            await objects.delete(client, PODS, pod["metadata"]["name"], namespace="default", grace_seconds=0)

    command = [sys.executable, "-m", "pathways_jupyter", "multihost", "run", "--local", "--service", "pathways-cluster"]
    with subprocess.Popen(
        [*command, "--dir", code, "--grace", "1", "--", "echo up; exec sleep 300"],
        env=machine.environ,
        cwd=machine.directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert sorted(running.stdout.readline() for _ in range(2)) == ["[0-0] up\n", "[1-0] up\n"]
        asyncio.run(delete_worker())
        shown, said = running.communicate(timeout=60)
    assert running.returncode == 255, shown + said
    assert "failed; the others are ended." in said
    assert "Unclosed" not in said


async def test_workers_that_do_not_run_are_missed_unless_the_others_will_do(bench, client):
    spec = ServiceSpec(tpu.parse_instance_type("tpuv6e:2x2"), slices=3, image="pathways:1")
    await objects.create(client, JOBSETS, manifest(spec), namespace="default")
    metadata = pod("worker", 1)["metadata"]
    del metadata["creationTimestamp"]
    await bench.running(client, {"metadata": metadata}, "sleep", "100")
    with pytest.raises(ConfigError, match="2 of 3 workers of service pathways-cluster do not run, the first is 0-0"):
        await pod_hosts.find(client, "default", service=SERVICE)
    (target,) = await pod_hosts.find(client, "default", service=SERVICE, partial=True)
    assert target.label == "1-0"


async def test_a_job_that_does_not_exist_or_has_no_workers_leads_to_what_shows_jobs(bench, client):
    with pytest.raises(ServiceError, match="There is no job nope in namespace default") as missing:
        await pod_hosts.find(client, "default", job="nope")
    assert "pathways-jupyter job list" in missing.value.advice(Face.TERMINAL)
    await objects.create(client, JOBSETS, expansion.expand(headless("idle")))
    with pytest.raises(ConfigError, match="No worker of job idle is running") as waiting:
        await pod_hosts.find(client, "default", job="idle")
    assert waiting.value.advice(Face.TERMINAL).startswith("pathways-jupyter job show idle shows their state.")


def test_a_cell_runs_on_hosts_and_shows_a_table(machine, cluster, notebook):
    code = machine.directory / "cell-code"
    code.mkdir()
    (code / "data.txt").write_text("sent once")
    notebook.run("%load_ext pathways_jupyter")
    ran = notebook.run(
        f"%%multihost --local --service pathways-cluster --dir {code} --run-name a-cell\n"
        "cat data.txt; echo\necho $SLICE"
    )
    assert ran.status == "ok", ran.shown
    table = next(each for each in ran.outputs if "Run a-cell" in str(each))
    assert "2 exited" in table["data"]["text/plain"]
    assert "<details>" in table["data"]["text/html"]
    assert "sent once" in table["data"]["text/html"]
    failed = notebook.run(
        f"%pathways multihost run --local --service pathways-cluster --dir {code} --run-name bad -- exit 5"
    )
    assert failed.error == "RunFailed", failed.text
    assert "Run bad ended with exit code 5." in failed.shown
    assert "multihost-runs/bad" in failed.shown


@pytest.mark.thorough
def test_interrupting_a_cell_ends_the_command_on_the_hosts(machine, cluster, notebook):
    notebook.run("%load_ext pathways_jupyter")
    mark = machine.directory / "ended-by-interrupt"
    empty = machine.directory / "empty"
    empty.mkdir()
    request = notebook.begin(
        f"%%multihost --local --service pathways-cluster --dir {empty} --run-name stopped\n"
        f"trap 'touch {mark}-$SLICE; exit 1' TERM; touch {mark}-trapped-$SLICE; while true; do sleep 0.1; done"
    )
    wait_until(lambda: all(Path(f"{mark}-trapped-{number}").exists() for number in (0, 1)))
    notebook.manager.interrupt_kernel()
    cell = notebook.finish(request)
    assert cell.error == "KeyboardInterrupt"
    # The last table is true, and has the logs.
    last = [each for each in notebook.seen if "Run stopped" in each][-1]
    assert "2 stopped" in last
    assert "Logs: " in last
    assert all((machine.directory / f"ended-by-interrupt-{number}").exists() for number in (0, 1))


def test_interrupting_a_cell_before_anything_runs_says_so(machine, notebook):
    notebook.run("%load_ext pathways_jupyter")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        request = notebook.begin(f"%%multihost --hosts {host} --accept-new --use-existing-folder --run-name none\ntrue")
        connection, _ = silent.accept()
        notebook.wait_for("Run none: 1 connecting")
        notebook.manager.interrupt_kernel()
        assert notebook.finish(request).error == "KeyboardInterrupt"
        connection.close()
    # In the place of what said that it connects.
    assert "nothing was started" in [each for each in notebook.seen if each][-1]
    assert "connecting" not in str(list(notebook.displays.values()))


def test_tab_completes_options():
    assert complete("multihost ", MAGIC)[1] == ["run"]
    assert "--service" in complete("multihost run --s", MAGIC)[1]
