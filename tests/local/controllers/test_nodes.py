from __future__ import annotations

import pytest

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.local.apiserver.resources import NODES, PODS
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.controllers.jobset import JOB_KEY_LABEL
from pathways_jupyter.local.controllers.nodes import NodeController, nodes_for
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.local.settings import HOLLOW_ANNOTATION
from pathways_jupyter.service import names
from pathways_jupyter.service.service_jobset import EXCLUSIVE

V6E = {names.ACCELERATOR_LABEL: "tpu-v6e-slice"}


def tpu_pod(machine, name, *, chips=4, topology="2x2", exclusive="", **spec):
    metadata = {"annotations": {HOLLOW_ANNOTATION: "true"}}
    if exclusive:
        metadata["annotations"][EXCLUSIVE] = names.NODEPOOL_LABEL
        metadata["labels"] = {JOB_KEY_LABEL: exclusive}
    selector = {**V6E, names.TOPOLOGY_LABEL: topology}
    resources = {"limits": {names.TPU_RESOURCE: str(chips)}}
    return machine.pod(
        name,
        "sleep",
        node="",
        metadata=metadata,
        container={"resources": resources, **spec.pop("container", {})},
        nodeSelector=selector,
        **spec,
    )


def on(*nodes):
    return lambda pod: pod is not None and pod["spec"].get("nodeName") in nodes


def unschedulable(text):
    return lambda pod: any(
        each["type"] == "PodScheduled" and each["status"] == "False" and text in each["message"]
        for each in pod["status"].get("conditions", ())
    )


def test_a_slice_of_several_hosts_is_one_node_pool():
    nodes = nodes_for({"tpuv6e:4x4": 2}, cpu_nodes=1)
    assert len(nodes) == 1 + 2 * 4
    pools = {node["metadata"]["labels"][names.NODEPOOL_LABEL] for node in nodes}
    assert pools == {"cpu-np", "tpuv6e-4x4-0", "tpuv6e-4x4-1"}
    assert nodes[1]["status"]["allocatable"][names.TPU_RESOURCE] == "4"
    with pytest.raises(ConfigError):
        nodes_for({"tpuv6e:9x9": 1})


async def test_chips_are_given_once(controlled):
    tpu_pod(controlled, "one")
    tpu_pod(controlled, "two")
    await controlled.until(on("tpuv6e-2x2-0-0", "tpuv6e-2x2-1-0"), "one")
    await controlled.until(on("tpuv6e-2x2-0-0", "tpuv6e-2x2-1-0"), "two")
    tpu_pod(controlled, "three")
    await controlled.until(unschedulable("2 Insufficient google.com/tpu"), "three")
    controlled.store.delete(PODS, "default", "one")
    await controlled.until(on("tpuv6e-2x2-0-0", "tpuv6e-2x2-1-0"), "three")


async def test_a_pod_without_chips_stays_off_tpu_nodes(controlled):
    controlled.pod("plain", "sleep", node="", metadata={"annotations": {HOLLOW_ANNOTATION: "true"}})
    await controlled.until(on("cpu-0", "cpu-1"), "plain")


async def test_a_node_of_a_user_and_large_quantities_do_not_keep_pods_from_being_placed(controlled):
    hollow = {"annotations": {HOLLOW_ANNOTATION: "true"}}
    # As of ``kubectl apply`` with no more than a name.
    controlled.store.create(NODES, {"metadata": {"name": "bare"}})
    resources = {"limits": {"example.com/thing": "1k"}}
    controlled.pod("greedy", "sleep", node="", metadata=hollow, container={"resources": resources})
    await controlled.until(unschedulable("Insufficient example.com/thing"), "greedy")
    controlled.pod("plain", "sleep", node="", metadata=hollow)
    await controlled.until(on("cpu-0", "cpu-1"), "plain")


async def test_a_cordoned_node_takes_no_pod(controlled):
    for name in ("tpuv6e-2x2-0-0", "tpuv6e-2x2-1-0"):
        controlled.store.edit(NODES, "", name, lambda node: node["spec"].update(unschedulable=True))
    tpu_pod(controlled, "p")
    await controlled.until(unschedulable("2 node(s) were unschedulable"), "p")
    controlled.store.edit(NODES, "", "tpuv6e-2x2-1-0", lambda node: node["spec"].pop("unschedulable"))
    await controlled.until(on("tpuv6e-2x2-1-0"), "p")


async def test_two_pods_do_not_share_a_port_of_a_node(controlled):
    for name in ("a", "b", "c"):
        controlled.pod(
            name,
            "sleep",
            node="",
            metadata={"annotations": {HOLLOW_ANNOTATION: "true"}},
            hostNetwork=True,
            container={"ports": [{"containerPort": 29000}]},
        )
    first, second = [await controlled.until(on("cpu-0", "cpu-1"), name) for name in ("a", "b")]
    assert first["spec"]["nodeName"] != second["spec"]["nodeName"]
    await controlled.until(unschedulable("free ports"), "c")


async def test_a_job_keeps_a_slice_to_itself(controlled):
    tpu_pod(controlled, "a0", topology="2x4", exclusive="a")
    await controlled.until(on("tpuv6e-2x4-0-0", "tpuv6e-2x4-0-1"), "a0")
    tpu_pod(controlled, "b0", topology="2x4", exclusive="b")
    await controlled.until(unschedulable("of another Job"), "b0")
    tpu_pod(controlled, "a1", topology="2x4", exclusive="a")
    await controlled.until(on("tpuv6e-2x4-0-0", "tpuv6e-2x4-0-1"), "a1")


async def test_pods_go_where_affinity_wants_them(controlled):
    def term(kind, label):
        rule = {"labelSelector": {"matchLabels": {"app": label}}, "topologyKey": "kubernetes.io/hostname"}
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}

    hollow = {"annotations": {HOLLOW_ANNOTATION: "true"}}
    controlled.pod("base", "sleep", node="", metadata={**hollow, "labels": {"app": "base"}})
    base = await controlled.until(on("cpu-0", "cpu-1"), "base")
    controlled.pod("near", "sleep", node="", metadata=hollow, affinity=term("podAffinity", "base"))
    controlled.pod("far", "sleep", node="", metadata=hollow, affinity=term("podAntiAffinity", "base"))
    assert (await controlled.until(on("cpu-0", "cpu-1"), "near"))["spec"]["nodeName"] == base["spec"]["nodeName"]
    assert (await controlled.until(on("cpu-0", "cpu-1"), "far"))["spec"]["nodeName"] != base["spec"]["nodeName"]


async def test_a_deleted_node_takes_its_pods_along_and_comes_back(controlled):
    tpu_pod(controlled, "p")
    pod = await controlled.until(on("tpuv6e-2x2-0-0", "tpuv6e-2x2-1-0"), "p")
    node = pod["spec"]["nodeName"]
    before = controlled.store.get(NODES, "", node)
    controlled.store.delete(NODES, "", node)
    await controlled.until_gone("p")
    after = await controlled.until(
        lambda found: found is not None and found["metadata"]["uid"] != before["metadata"]["uid"], node, NODES
    )
    assert after["status"]["addresses"] == before["status"]["addresses"]


async def test_a_node_that_was_deleted_and_then_given_up_is_there_when_it_is_wanted_again():
    store, wanted = Store(), nodes_for({}, cpu_nodes=1)
    controller = NodeController(store, Recorder(store), wanted, address=lambda _: "127.0.0.1")
    controller.want(wanted)
    store.delete(NODES, "", "cpu-0")
    # It is to stay away for a while. Meanwhile a growth of the cluster is undone, and later there is another one.
    assert controller.reconcile(("", "cpu-0"))
    controller.want([])
    assert controller.reconcile(("", "cpu-0")) is None
    controller.want(wanted)
    assert store.find(NODES, "", "cpu-0") is not None


async def test_a_node_that_is_not_ready_is_left(controlled):
    tpu_pod(controlled, "p")
    pod = await controlled.until(on("tpuv6e-2x2-0-0", "tpuv6e-2x2-1-0"), "p")
    node = pod["spec"]["nodeName"]

    def fail(status):
        return lambda obj: obj["status"]["conditions"][0].update(status=status)

    controlled.store.edit(NODES, "", node, fail("Unknown"), subresource="status")
    await controlled.until_gone("p")
    await controlled.until(lambda obj: "not-ready" in str(obj["spec"].get("taints")), node, NODES)
    controlled.store.edit(NODES, "", node, fail("True"), subresource="status")
    await controlled.until(lambda obj: "not-ready" not in str(obj["spec"].get("taints")), node, NODES)


async def test_a_taint_evicts_who_does_not_tolerate_it(controlled):
    hollow = {"annotations": {HOLLOW_ANNOTATION: "true"}}
    controlled.pod("tolerant", "sleep", node="cpu-0", metadata=hollow, tolerations=[{"operator": "Exists"}])
    controlled.pod("other", "sleep", node="cpu-0", metadata=hollow)
    await controlled.until(lambda pod: pod["status"]["phase"] == "Running", "other")
    taint = {"key": "maintenance", "effect": "NoExecute"}
    controlled.store.edit(NODES, "", "cpu-0", lambda node: node["spec"].update(taints=[taint]))
    await controlled.until_gone("other")
    assert controlled.store.find(PODS, "default", "tolerant")
