"""Cordons on an API server without a cluster: their end, by whatever ends them, and what they leave."""

from __future__ import annotations

import asyncio
import io

import psutil
import pytest
from waits import has_ended, wait_until

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.elastic import cordons, fault_targets
from pathways_jupyter.elastic.fault_targets import Workers
from pathways_jupyter.kube import objects
from pathways_jupyter.service import names

DEADLINE = 60.0
WORKERS = Workers("service", "default", (), False)


@pytest.fixture
def node(bench):
    """A node; returns a function that cordons it for a fault, as a process did that has ended since."""
    bench.store.create(bench.of(objects.NODES), {"metadata": {"name": "n1"}})

    def cordon(fault: str) -> None:
        def change(node):
            node["metadata"]["annotations"] = {names.CORDONED_ANNOTATION: fault}
            node["spec"] = {"unschedulable": True}

        bench.store.edit(bench.of(objects.NODES), "", "n1", change)
        cordons.lasting(fault).touch()

    return cordon


def is_free(bench) -> bool:
    found = bench.store.get(bench.of(objects.NODES), "", "n1")
    return not cordons.mark(found) and not (found.get("spec") or {}).get("unschedulable")


def run(monkeypatch, bench, fault: str, *, patience: float) -> int:
    """Run, in this process, what ends `fault` at once."""
    monkeypatch.setattr("sys.stdin", io.StringIO(fault_targets.to_json(ConnectConfig(kubeconfig=bench.kubeconfig()))))
    return cordons.main([fault, "0", str(patience)])


def keepers(fault):
    """The child that uncordons the nodes of a fault in the end."""
    # One of an earlier test that has ended has no command line.
    living = [each for each in psutil.Process().children() if not has_ended(each.pid)]
    return [each for each in living if fault in each.cmdline()]


async def test_a_fault_that_is_healed_leaves_no_cordon_no_file_and_no_process(bench, client, node):
    where = ConnectConfig(kubeconfig=bench.kubeconfig())
    assert await cordons.cordon(client, where, ["n1"], WORKERS, 1, 600) == ("n1",)
    fault = cordons.mark(await objects.get(client, objects.NODES, "n1"))
    # One that begins has no command line for a moment.
    await asyncio.to_thread(wait_until, lambda: keepers(fault))
    (process,) = keepers(fault)
    assert fault.startswith("default/service/1/")
    assert cordons.lasting(fault).exists()
    assert await cordons.uncordon(client, ["default/service/2/", "other/service/1/"]) == ()
    assert cordons.lasting(fault).exists()

    assert await cordons.uncordon(client, [cordons.of_slice(WORKERS, 1)]) == ("n1",)

    assert not cordons.lasting(fault).exists()
    assert is_free(bench)
    await asyncio.to_thread(process.wait, DEADLINE)


async def test_what_ends_a_fault_uncordons_its_nodes_and_removes_its_file(bench, node, monkeypatch):
    node("service/1/abc")

    assert await asyncio.to_thread(run, monkeypatch, bench, "service/1/abc", patience=DEADLINE) == 0

    assert is_free(bench)
    assert not cordons.lasting("service/1/abc").exists()


async def test_what_gives_up_on_a_cluster_removes_the_file_too(bench, node, monkeypatch):
    node("service/1/abc")

    assert await asyncio.to_thread(run, monkeypatch, bench, "service/1/abc", patience=0.0) == 1

    assert not is_free(bench)
    assert not cordons.lasting("service/1/abc").exists()


async def test_the_end_of_one_fault_is_not_that_of_another(bench, node, monkeypatch):
    node("service/1/other")

    assert await asyncio.to_thread(run, monkeypatch, bench, "service/1/abc", patience=DEADLINE) == 0

    assert not is_free(bench)
    assert cordons.lasting("service/1/other").exists()
