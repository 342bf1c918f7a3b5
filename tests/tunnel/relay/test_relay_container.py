"""The relay's container beside a proxy's, as Kubernetes runs the two."""

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import PODS
from pathways_jupyter.service import names
from pathways_jupyter.tunnel.relay import relay_container
from pathways_jupyter.tunnel.relay.relay_container import RelaySpec

PORT = 29100


async def test_a_proxy_that_no_one_needs_ends_with_its_pod_although_the_relay_is_a_sidecar(bench):
    probe = {**relay_container.liveness_probe(PORT), "initialDelaySeconds": 0, "periodSeconds": 1}
    proxy = {
        "name": names.PROXY_CONTAINER,
        "image": "python:3",
        "command": ["python", "-c", "import time; time.sleep(3600)"],
        "livenessProbe": probe,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "proxy"},
        "spec": {
            "restartPolicy": "Never",
            "nodeName": "n0",
            "initContainers": [relay_container.container(RelaySpec("00" * 32, "python:3", keep=1.0), PORT)],
            "containers": [proxy],
        },
    }
    async with bench.client() as client:
        await objects.create(client, PODS, pod, namespace="default")
        ended = await bench.until(client, "proxy", lambda found: found["status"].get("phase") == "Failed")
    (state,) = ended["status"]["containerStatuses"]
    assert state["restartCount"] == 0
    assert "exitCode" in state["state"]["terminated"]
