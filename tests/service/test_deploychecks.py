"""What is checked before a deployment, against a real API server, and a bucket behind Google's JSON API."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from pathways_jupyter.base.errors import ApiError, ClusterError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.objects import EVENTS, NODES
from pathways_jupyter.local.controllers.nodes import nodes_for
from pathways_jupyter.service import deploychecks, deployment, names
from pathways_jupyter.service.checks import Level

GCS = "gs://team/scratch"


@contextlib.contextmanager
def storage(status: int) -> Iterator[tuple[str, list]]:
    """Serve object lists and tokens with this status; yield the base URL and the requests."""
    seen: list = []

    class Routes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            self._answer(status, {"kind": "storage#objects"})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(200, {"access_token": "from-google", "expires_in": 3600, "token_type": "Bearer"})

        def _answer(self, code: int, body: dict) -> None:
            written = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Routes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
        server.shutdown()


def signed_in(monkeypatch, tmp_path, base: str) -> None:
    """Use that endpoint, with application default credentials whose tokens come from it."""
    import played_google

    account = tmp_path / "account.json"
    account.write_text(json.dumps(played_google.service_account(f"{base}/token")))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
    monkeypatch.setenv(deploychecks.STORAGE_ENDPOINT_VARIABLE, f"{base}/storage/v1/")


def test_a_bucket_is_read_with_a_token_of_the_default_credentials(monkeypatch, tmp_path):
    with storage(200) as (base, seen):
        signed_in(monkeypatch, tmp_path, base)
        deploychecks.read_bucket(GCS)
    ((path, authorization),) = seen
    assert urlsplit(path).path == "/storage/v1/b/team/o"
    assert parse_qs(urlsplit(path).query)["prefix"] == ["scratch"]
    assert authorization == "Bearer from-google"


@pytest.mark.parametrize(
    ("status", "said", "hint"),
    [
        (404, "gs://team does not exist", "gcloud storage buckets create gs://team"),
        (403, "may not be read with your credentials", "roles/storage.objectUser"),
        (500, "HTTP 500", "Try again"),
    ],
)
def test_a_bucket_that_cannot_be_read_says_why(monkeypatch, tmp_path, status, said, hint):
    with storage(status) as (base, _):
        signed_in(monkeypatch, tmp_path, base)
        with pytest.raises(ApiError, match=said) as raised:
            deploychecks.read_bucket(GCS)
    assert hint in raised.value.hint


def test_an_endpoint_that_does_not_answer_is_no_missing_bucket(monkeypatch, tmp_path):
    with storage(200) as (base, _):
        signed_in(monkeypatch, tmp_path, base)
        monkeypatch.setenv(deploychecks.STORAGE_ENDPOINT_VARIABLE, "http://127.0.0.1:1/")
        with pytest.raises(ClusterError, match="cannot be reached"):
            deploychecks.read_bucket(GCS)


async def checked(client) -> dict:
    wanted = deployment.plan({"name": "mine", "tpu": "tpuv6e:2x2", "local": True}, jax="0.10.2")
    return {each.name: each async for each in deploychecks.findings(client, wanted.within("default").spec)}


async def test_events_about_quota_are_shown(bench):
    async with bench.client() as client:
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "mine.1", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "mine-worker-0-0-abcde", "namespace": "default"},
            "type": "Warning",
            "reason": "FailedScaleUp",
            "message": "Node scale up in zones us-east5-b failed: GCE quota exceeded.",
        }
        await objects.create(client, EVENTS, event)
        found = await checked(client)
    assert found["quota"].level is Level.WARN
    assert "GCE quota exceeded" in found["quota"].message


async def test_of_many_node_pools_some_are_named(bench):
    async with bench.client() as client:
        await create_nodes(client, nodes_for({"tpuv6e:2x2": 40}, cpu_nodes=0))
        found = await checked(client)
    assert found["node pools"].message.startswith("40 free for tpuv6e:2x2: ")
    assert found["node pools"].message.endswith(" and 35 more")


async def test_a_cluster_without_nodes_lacks_both_kinds_of_node_pools(bench):
    async with bench.client() as client:
        found = await checked(client)
    assert found["node pools"].level is found["head"].level is Level.FAIL
    assert "There are no TPU nodes." in found["node pools"].message
    assert "--machine-type=ct6e-standard-4t --tpu-topology=2x2 --num-nodes=1" in found["node pools"].hint
    assert "gcloud container node-pools create" in found["head"].hint


async def create_nodes(client, nodes) -> None:
    for node in nodes:
        await objects.create(client, NODES, {"apiVersion": "v1", "kind": "Node", **node})
        path, status = NODES.item("", node["metadata"]["name"], "status"), {"status": node["status"]}
        await client.request("PATCH", path, body=status, content_type="application/merge-patch+json")


async def embedded_nodes(client) -> None:
    """The nodes of an embedded cluster of one slice, with the head of another service on the only one for heads."""
    await create_nodes(client, nodes_for({"tpuv6e:2x2": 1}, cpu_nodes=1))
    head = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "theirs-head", "labels": {names.REPLICATED_JOB_LABEL: names.HEAD_JOB}},
        "spec": {"nodeName": "cpu-0", "containers": [{"name": "main", "image": "busybox"}]},
    }
    await objects.create(client, objects.PODS, head, namespace="default")


async def test_the_advice_for_the_embedded_cluster_fits_it(bench):
    given = {"name": "mine", "tpu": "tpuv5e:4x4", "slices": 2, "local": True, "gcs_bucket": GCS, "head_pool": "cpu-np"}
    wanted = deployment.plan(given, jax="0.10.2")
    async with bench.client() as client:
        await embedded_nodes(client)
        found = {each.name: each async for each in deploychecks.findings(client, wanted.within("default").spec)}
    assert found["node pools"].level is found["head"].level is Level.FAIL
    for each in found.values():
        assert "gcloud" not in each.message + each.hint
    assert "pathways-jupyter local up --spare tpuv5e:4x4=2" in found["node pools"].hint
    assert "pathways-jupyter service delete NAME --local" in found["head"].hint
    assert "pathways-jupyter local up --spare tpuv5e:4x4=2" in found["head"].hint
    assert found["bucket"].level is Level.OK
