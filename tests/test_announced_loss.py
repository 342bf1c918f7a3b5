"""A session that suspends by itself is suspended before the cloud takes the nodes of its slices away."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waits import wait_until

from pathways_jupyter.kube import auth, objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import NODES, PODS
from pathways_jupyter.service import names
from pathways_jupyter.session.supervisor.node_notices import MAINTENANCE_LABEL, SCHEDULED_LABEL, TERMINATION_TAINT

pytestmark = pytest.mark.timeout(240)

CONNECT = """
%load_ext pathways_jupyter
%pathways connect --local --tpu tpuv6e:2x2=1 {options}
import jax.numpy as jnp
w = jnp.arange(8.0)
"""
LONG = """
import pathlib, time
print("runs")
while not pathlib.Path({go!r}).exists(): time.sleep(0.05)
"""


@pytest.fixture
def notebook(cleared_notebook):
    return cleared_notebook


def ask(kubeconfig: Path, question: Any) -> Any:
    async def asked() -> Any:
        async with Client(auth.load(str(kubeconfig))) as client:
            return await question(client)

    return asyncio.run(asked())


def node_of(kubeconfig: Path, session: dict) -> str:
    """The node of the first worker of a session's slice."""
    labels = f"{names.JOBSET_NAME_LABEL}={names.service_of(session['service'])[0]}"
    labels += f",{names.JOB_INDEX_LABEL}={session['slices'][0]['number']}"
    labels += f",{names.REPLICATED_JOB_LABEL} in ({','.join(names.WORKER_JOBS)})"
    found = ask(kubeconfig, lambda client: objects.list_(client, PODS, namespace=session["namespace"], labels=labels))
    return found.items[0]["spec"]["nodeName"]


@contextlib.contextmanager
def announced(kubeconfig: Path, node: str, *, taint: str = "", **labels: str) -> Iterator[None]:
    """Change a node as GKE does."""

    def change(taints: list[dict], marks: dict[str, str | None]) -> None:
        patch = {"spec": {"taints": taints}, "metadata": {"labels": marks}}
        ask(kubeconfig, lambda client: objects.patch(client, NODES, node, patch))

    before = ask(kubeconfig, lambda client: objects.find(client, NODES, node))["spec"].get("taints") or []
    try:
        change([*before, *([{"key": taint, "effect": "NoSchedule"}] if taint else [])], dict(labels))
        yield
    finally:
        change(before, dict.fromkeys(labels))


@pytest.mark.parametrize(
    "notice",
    [
        {"taint": TERMINATION_TAINT},
        {MAINTENANCE_LABEL: "ONGOING"},
        {SCHEDULED_LABEL: lambda: f"{time.time() + 120:.0f}"},
    ],
    ids=["termination", "maintenance", "scheduled"],
)
def test_arrays_are_saved_before_a_node_is_taken_away(cluster, machine, notebook, notice):
    assert notebook.run(CONNECT.format(options="--suspend-after 2h")).status == "ok"
    (session,) = json.loads(machine.cli("sessions", "--json").stdout)
    node = node_of(cluster, session)
    notice = {name: value() if callable(value) else value for name, value in notice.items()}
    with announced(cluster, node, **notice):
        said = notebook.wait_for("array (32 bytes) saved")
        assert f"Node {node} of slice {session['slices'][0]['number']} is about to be taken away." in said
        assert "Suspended: 1 array (32 bytes) saved" in said
        (session,) = json.loads(machine.cli("sessions", "--json").stdout)
        assert session["state"] == "suspended"
    assert "Resumed: 1 array" in notebook.run("%pathways resume").text
    assert "28.0" in notebook.run("print(w.sum())").text


def test_a_cell_ends_first_and_what_is_far_away_or_elsewhere_does_not_count(cluster, machine, notebook, tmp_path):
    assert notebook.run(CONNECT.format(options="--suspend-after 2h")).status == "ok"
    (session,) = json.loads(machine.cli("sessions", "--json").stdout)
    nodes = ask(cluster, lambda client: objects.list_(client, NODES, labels=names.ACCELERATOR_LABEL)).items
    node = node_of(cluster, session)
    other = next(each["metadata"]["name"] for each in nodes if each["metadata"]["name"] != node)
    go = tmp_path / "go"
    running = notebook.begin(LONG.format(go=str(go)))
    notebook.wait_for("runs")
    next_week = f"{time.time() + 7 * 86400:.0f}"
    with (
        announced(cluster, other, taint=TERMINATION_TAINT),
        announced(cluster, node, **{SCHEDULED_LABEL: next_week}),
        announced(cluster, node, **{MAINTENANCE_LABEL: "ONGOING"}),
    ):
        notebook.wait_for("is about to be taken away")
        (session,) = json.loads(machine.cli("sessions", "--json").stdout)
        assert session["state"] == "connected"
        go.touch()
        assert notebook.finish(running).status == "ok"
        assert "1 array (32 bytes) saved" in notebook.wait_for("array (32 bytes) saved")
    taken_away = [each for each in notebook.seen if "is about to be taken away" in each]
    assert not any(other in each for each in taken_away), taken_away
    # A session that takes a slice in spite of a notice is warned, and goes on.
    with announced(cluster, node, **{MAINTENANCE_LABEL: "ONGOING"}), announced(cluster, other, taint=TERMINATION_TAINT):
        ran = notebook.run("%pathways resume")
        assert "Resumed: 1 array" in ran.text, ran.shown
        wait_until(
            lambda: "is about to be taken away" in machine.cli("logs", "supervisor").stdout.rpartition("Connected.")[2]
        )
        assert json.loads(machine.cli("sessions", "--json").stdout)[0]["state"] == "connected"
