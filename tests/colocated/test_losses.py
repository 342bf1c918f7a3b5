"""What a cell is told when what it runs on goes away, in a real kernel on the embedded cluster."""

import os
import signal

import pytest

CONNECT = "%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2"
PIDS = "%%colocated --quiet\nimport os\nos.getpid()"
ENDLESS = "%%colocated\nimport time\nprint('begun')\nwhile True: time.sleep(0.1)"
DELETE_A_WORKER_SOON = """
from pathways_jupyter import entry
from pathways_jupyter.kube import objects
from pathways_jupyter.session import session as sessions

async def kill(client, namespace):
    labels = "jobset.sigs.k8s.io/replicatedjob-name=worker,jobset.sigs.k8s.io/job-index=1"
    pods = await objects.list_(client, objects.PODS, namespace=namespace, labels=labels)
    for pod in pods.items:
        await objects.delete(client, objects.PODS, pod["metadata"]["name"], namespace=namespace, grace_seconds=0)

import threading
record = sessions.current().record
threading.Timer(2.0, lambda: entry.ask(record, kill)).start()
"""
SOON = 30.0
"""Seconds within which a cell has to end: far more than it takes, as test machines are slow."""


@pytest.fixture
def connected(cluster, notebook):
    cell = notebook.run(CONNECT)
    assert cell.status == "ok", cell.shown
    return notebook


def pids(connected) -> list[int]:
    assert connected.run(PIDS).status == "ok"
    return [int(pid) for pid in connected.run("print(_[0], _[1])").text.split()]


def begin(connected) -> str:
    first = len(connected.seen)
    request = connected.begin(ENDLESS)
    connected.wait_for("begun", since=first)
    return request


def test_a_sidecar_that_dies_ends_the_cell_and_no_other_hosts_process(connected) -> None:
    before = pids(connected)
    connected.run("%%colocated\nkept = 1")
    request = begin(connected)
    os.kill(before[1], signal.SIGKILL)
    cell = connected.finish(request, timeout=SOON)
    assert cell.error == "ColocatedError"
    assert "host 1" in cell.shown
    assert len(cell.shown.strip().splitlines()) <= 3
    again = connected.run("%%colocated\nimport os\n(os.getpid(), 'kept' in globals())")
    assert again.status == "ok", again.shown
    assert "[host 1] The sidecar restarted" in again.text
    assert f"[host 0] ({before[0]}, True)" in again.text
    assert str(before[1]) not in again.text


def test_user_code_that_crashes_ends_the_call_only(connected) -> None:
    cell = connected.run("%%colocated --hosts 1\nimport os\nos.kill(os.getpid(), 11)", timeout=SOON)
    assert cell.error == "ColocatedError"
    assert "host 1" in cell.shown
    assert connected.run("%%colocated\n1").text.strip().endswith("[hosts 0, 1] 1")
    assert "28.0" in connected.run("import jax; print(float(jax.numpy.arange(8.0).sum()))").text


def test_a_worker_that_goes_ends_the_cell(connected) -> None:
    assert connected.run(DELETE_A_WORKER_SOON).status == "ok"
    cell = connected.run(ENDLESS, timeout=SOON)
    assert cell.error == "ColocatedError"
    assert len(cell.shown.strip().splitlines()) <= 3


def test_a_session_that_is_ended_elsewhere_ends_the_cell(connected, machine) -> None:
    request = begin(connected)
    assert machine.cli("sessions", "disconnect").returncode == 0
    cell = connected.finish(request, timeout=SOON)
    assert cell.error == "ColocatedError"
    assert "session was lost" in cell.shown
