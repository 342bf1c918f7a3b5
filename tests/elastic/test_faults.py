"""Faults on purpose: what they do, to whom, and that they end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import subprocess
import sys

import asks
import pytest
import yaml
from kinds import NODES

from pathways_jupyter.base.config import ConnectConfig
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.events import EventKind
from pathways_jupyter.elastic import cordons, fault_targets, faults
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.watch import watch

DEADLINE = 60.0
KILLED = """
import os, signal, sys
from pathways_jupyter.elastic import fault_targets, faults
where = fault_targets.from_json(sys.stdin.read())
faults.slice_down(fault_targets.of_record(where), 1, seconds=2)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def ask(cluster):
    return functools.partial(asks.ask, cluster.kubeconfig)


async def until_nodes(client, true):
    """Wait until the nodes, by name, are such that `true` holds."""
    nodes = {}
    async with asyncio.timeout(DEADLINE), contextlib.aclosing(watch(client, NODES)) as changes:
        async for change in changes:
            if change.object:
                nodes[change.object["metadata"]["name"]] = change.object
            if nodes and true(nodes):
                return nodes
    raise AssertionError("the watch ended")


def cordoned(nodes):
    return sorted(name for name, node in nodes.items() if node["spec"].get("unschedulable"))


async def all_free(client):
    return await until_nodes(client, lambda nodes: not cordoned(nodes))


def until(session, kind, since, number):
    for event in session.follow(since):
        if event.kind is kind and event.data["number"] == number:
            return event
    raise AssertionError("the session ended")


def test_a_drained_node_takes_no_pods_until_it_is_healed_and_all_of_it_is_in_the_log(session, ask):
    since = session.event_count
    fault = faults.drain_node(session, 1, seconds=600)
    until(session, EventKind.SLICE_DOWN, since, 1)
    nodes = ask(until_nodes, lambda nodes: cordoned(nodes) == list(fault.nodes))
    assert {cordons.mark(nodes[name]).split("/")[2] for name in fault.nodes} == {"1"}
    assert faults.heal(session, 2) == ()
    # Of a session that holds another slice of the service.
    held = tuple(each for each in session.record.slices if each.number == 0)
    assert faults.heal(fault_targets.FaultTarget(session.record, session.record.service, held)) == ()
    assert faults.heal(session, 1) == fault.nodes
    ask(all_free)
    until(session, EventKind.SLICE_HEALED, since, 1)
    noted = [event for event in session.events(since) if event.data.get("what") == "injected"]
    assert noted[0].message.startswith("On purpose: the node of slice 1 was drained")


@pytest.mark.thorough
def test_a_fault_ends_also_when_the_process_that_injected_it_is_killed(session, ask):
    since = session.event_count
    killed = subprocess.run(
        [sys.executable, "-c", KILLED],
        input=fault_targets.to_json(session.record),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert killed.returncode == -9, killed.stderr
    until(session, EventKind.SLICE_DOWN, since, 1)
    ask(all_free)
    until(session, EventKind.SLICE_HEALED, since, 1)


def test_what_ends_a_fault_ends_itself_when_its_cluster_is_gone(tmp_path, cluster):
    # A copy: the file alone does not say that this was an embedded cluster.
    gone = yaml.safe_load(cluster.kubeconfig.read_text())
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{unused.getsockname()[1]}"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(gone))
        ended = subprocess.run(
            [sys.executable, "-m", "pathways_jupyter.elastic.cordons", "service/1/abc", "0", "0.1"],
            input=fault_targets.to_json(ConnectConfig(kubeconfig=str(kubeconfig))),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_node_that_someone_else_cordoned_is_left_as_it_is(session, ask):
    async def by_hand(client, unschedulable):
        await objects.patch(client, NODES, node, {"spec": {"unschedulable": unschedulable}})

    async def node_of_slice(client):
        workers = await fault_targets.of_record(session.record).workers(client, "default", yes=False)
        (pod,) = await fault_targets.running(client, workers, 2)
        return pod["spec"]["nodeName"]

    node, since = ask(node_of_slice), session.event_count
    ask(by_hand, True)
    try:
        assert faults.slice_down(session, 2, seconds=600).nodes == ()
        assert faults.heal(session) == ()
        assert ask(objects.get, NODES, node)["spec"]["unschedulable"]
    finally:
        ask(by_hand, None)
    until(session, EventKind.SLICE_HEALED, since, 2)


def test_only_slices_of_the_session_can_be_hit(session):
    for inject in (faults.slice_down, faults.drain_node, faults.heal):
        with pytest.raises(ConfigError, match="Slice 7 is not one of this session's") as refused:
            inject(session, 7)
        assert refused.value.hint == "This session holds: 0, 1, 2."


def test_only_slices_that_a_service_has_can_be_hit(session):
    every = fault_targets.FaultTarget(session.record, session.record.service)
    for inject in (faults.slice_down, faults.heal):
        with pytest.raises(ConfigError, match="has no slice 9") as refused:
            inject(every, 9)
        assert refused.value.hint == "Its slices: 0, 1, 2."
