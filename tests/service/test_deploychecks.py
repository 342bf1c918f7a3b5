"""Checks before a deployment, against a real API server."""

from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import NODES
from pathways_jupyter.local.controllers.nodes import nodes_for
from pathways_jupyter.service import deploychecks, deployment, names
from pathways_jupyter.service.service_jobset import EXCLUSIVE


async def checked(client, **options) -> dict:
    wanted = deployment.plan({"name": "mine", "tpu": "tpuv6e:2x2", "local": True, **options}, jax="0.10.2")
    return {each.name: each async for each in deploychecks.findings(client, wanted)}


async def test_of_many_node_pools_some_are_named(client):
    await create_nodes(client, nodes_for({"tpuv6e:2x2": 40}, cpu_nodes=0))
    found = await checked(client)
    assert found["node pools"].message.startswith("40 free for tpuv6e:2x2: ")
    assert found["node pools"].message.endswith(" and 35 more")


async def test_a_cluster_without_nodes_lacks_both_kinds_of_node_pools(client):
    found = await checked(client)
    assert found["node pools"].level is found["head"].level is Tone.FAIL
    assert "There are no TPU nodes." in found["node pools"].message
    assert "--machine-type=ct6e-standard-4t --tpu-topology=2x2 --num-nodes=1" in found["node pools"].hint
    assert "gcloud container node-pools create" in found["head"].hint


async def create_nodes(client, nodes) -> None:
    for node in nodes:
        await objects.create(client, NODES, {"apiVersion": "v1", "kind": "Node", **node})
        path, status = NODES.item("", node["metadata"]["name"], "status"), {"status": node["status"]}
        await client.request("PATCH", path, body=status, content_type="application/merge-patch+json")


async def embedded_nodes(client) -> None:
    """The nodes of an embedded cluster of one slice, with a head that shares its node with no other on the only one."""
    await create_nodes(client, nodes_for({"tpuv6e:2x2": 1}, cpu_nodes=1))
    head = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "theirs-head",
            "labels": {names.REPLICATED_JOB_LABEL: names.HEAD_JOB},
            "annotations": {EXCLUSIVE: "kubernetes.io/hostname"},
        },
        "spec": {"nodeName": "cpu-0", "containers": [{"name": "main", "image": "busybox"}]},
    }
    await objects.create(client, objects.PODS, head, namespace="default")


async def test_the_advice_for_the_embedded_cluster_fits_it(client):
    given = {"name": "mine", "tpu": "tpuv5e:4x4", "slices": 2, "local": True, "head_pool": "cpu-np"}
    wanted = deployment.plan(given, jax="0.10.2")
    await embedded_nodes(client)
    found = {each.name: each async for each in deploychecks.findings(client, wanted)}
    assert found["node pools"].level is found["head"].level is Tone.FAIL
    for each in found.values():
        assert "gcloud" not in each.message + each.hint
    assert "pathways-jupyter local up --spare tpuv5e:4x4=2" in found["node pools"].hint
    assert "pathways-jupyter service delete NAME --local" in found["head"].hint
    assert "pathways-jupyter local up --spare tpuv5e:4x4=2" in found["head"].hint


SPOT = {"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}
SPOT_TEXT = "cloud.google.com/gke-spot=true:NoSchedule"


async def test_taints_and_labels_of_nodes_are_compared_with_the_placement(client):
    nodes = nodes_for({"tpuv6e:2x2": 2}, cpu_nodes=1)
    nodes[0]["spec"]["taints"] = [{"key": "heads", "effect": "NoSchedule"}]
    nodes[2]["spec"]["taints"].append(SPOT)
    nodes[2]["metadata"]["labels"]["cloud.google.com/gke-spot"] = "true"
    spot = {"worker_node_selector": ["cloud.google.com/gke-spot=true"]}
    await create_nodes(client, nodes)
    found = await checked(client)
    # The tainted pool does not count, and nothing is said while one is enough.
    assert found["node pools"].message == "1 free for tpuv6e:2x2: tpuv6e-2x2-0"
    assert found["head"].level is Tone.FAIL
    assert "it has the taint heads:NoSchedule (--head-tolerations heads:NoSchedule)" in found["head"].message
    found = await checked(client, **spot)
    assert found["node pools"].level is Tone.FAIL
    assert "tpuv6e-2x2-0: it has no label cloud.google.com/gke-spot" in found["node pools"].message
    assert f"tpuv6e-2x2-1: it has the taint {SPOT_TEXT} (--worker-tolerations {SPOT_TEXT})" in str(found)
    found = await checked(client, **spot, worker_tolerations=[SPOT_TEXT], head_tolerations=["heads"])
    assert found["node pools"].message == "1 free for tpuv6e:2x2: tpuv6e-2x2-1"
    assert found["head"].level is Tone.OK
    found = await checked(client, slices=2)
    assert f"Workers cannot run in tpuv6e-2x2-1: it has the taint {SPOT_TEXT}" in found["node pools"].message
    found = await checked(client, head_node_selector=["disk=ssd"])
    assert (found["head"].level, "labels disk=ssd" in found["head"].message) == (Tone.FAIL, True)
    found = await checked(client, head_node_selector=["kubernetes.io/hostname=cpu-0"], head_tolerations=["heads"])
    assert found["head"].message == "1 node for it: cpu-0"
