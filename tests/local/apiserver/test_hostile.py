from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEEP = b'{"metadata":' * 2_000 + b"1" + b"}" * 2_000

BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"x"',
    b"1",
    b"\xff\xfe",
    b'{"metadata": NaN}',
    b'{"metadata": 1}',
    b'{"metadata": {"name": 1}}',
    b'{"metadata": {"name": "a", "labels": 5}}',
    b'{"metadata": {"name": "a", "labels": {"a": 5}}}',
    b'{"metadata": {"name": "a", "labels": {"a b": "c"}}}',
    b'{"metadata": {"name": "a", "ownerReferences": [{}]}}',
    b'{"metadata": {"name": "a", "ownerReferences": {"a": 1}}}',
    b'{"metadata": {"name": "a", "finalizers": "x"}}',
    b'{"metadata": {"name": "../a"}}',
    b'{"metadata": {"name": "a\\u0000"}}',
    b'{"metadata": {"name": "\\ud800"}}',
    b'{"metadata": {"generateName": 7}}',
    b'{"kind": 5}',
    b'{"apiVersion": []}',
    b'{"data": [1]}',
    b'{"data": {"a": 1}}',
    DEEP,
    b"[" * 100_000,
    b'{"a":' * 90 + b"1" + b"}" * 90,
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(open_bench, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator:
    async with open_bench(tmp_path_factory.mktemp("hostile")) as bench:
        yield bench


async def send(bench, method: str, path: str, body: bytes, kind: str = "application/json"):
    async with bench.request(method, path, data=body, headers={"Content-Type": kind}) as response:
        return response.status, json.loads(await response.read() or b"null")


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("path", [MAPS, PODS, JOBS, CRDS])
async def test_bodies_that_make_no_sense_are_the_clients_fault(bench, path: str, body: bytes) -> None:
    before = bench.store.revision

    code, refused = await send(bench, "POST", path, body)

    assert 400 <= code < 500
    assert (refused["kind"], refused["status"]) == ("Status", "Failure")
    assert bench.store.revision == before


SPECS = [
    {"containers": 1},
    {"containers": {}},
    {"containers": [1]},
    {"containers": [{"name": []}]},
    {"containers": [{"name": "a", "image": "i", "ports": 3}]},
    {"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": "x"}]}]},
    {"containers": [{"name": "a", "image": "i", "env": [{"value": "x"}]}]},
    {"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "lots"}}}]},
    {"containers": [{"name": "a", "image": "i", "command": "sh"}]},
    {"containers": [{"name": "a", "image": "i"}], "initContainers": "x"},
    {"containers": [{"name": "a", "image": "i"}], "terminationGracePeriodSeconds": "soon"},
    {"containers": [{"name": "a", "image": "i"}], "terminationGracePeriodSeconds": 10**30},
    {"containers": [{"name": "a", "image": "i"}], "restartPolicy": "Perhaps"},
]


@pytest.mark.parametrize("spec", SPECS, ids=range(len(SPECS)))
async def test_pods_of_the_wrong_shape_are_refused(bench, spec) -> None:
    body = {"metadata": {"name": "a"}, "spec": spec}

    assert 400 <= (await bench.call("POST", PODS, body))[0] < 500
    job = {"metadata": {"name": "a"}, "spec": {"template": {"spec": {"restartPolicy": "Never", **spec}}}}
    assert 400 <= (await bench.call("POST", JOBS, job))[0] < 500


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "nonsense"])
@pytest.mark.parametrize("method", ["DELETE", "POST", "PUT", "PATCH"])
@pytest.mark.parametrize("body", [b"{}", b"\x1f\x8b\x08", gzip.compress(b"{}", mtime=0)[:-6], b"null"])
async def test_a_body_that_cannot_be_decoded_is_the_clients_fault(bench, method, encoding, body) -> None:
    headers = {
        "Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json",
        "Content-Encoding": encoding,
    }
    path = MAPS if method in ("DELETE", "POST") else f"{MAPS}/a"
    async with bench.request(method, path, data=body, headers=headers) as response:
        answer = await response.json()
        assert (response.status < 500, answer["kind"].endswith(("Status", "List"))) == (True, True), answer


DELETIONS = [
    b"[]",
    b"{",
    b"1",
    b'{"preconditions": 1}',
    b'{"gracePeriodSeconds": 1e400}',
    b'{"gracePeriodSeconds": "soon"}',
    b'{"gracePeriodSeconds": -1}',
    b'{"propagationPolicy": []}',
    b'{"propagationPolicy": {}}',
    b'{"propagationPolicy": "Perhaps"}',
    b"\xff",
]


@pytest.mark.parametrize("body", DELETIONS, ids=range(len(DELETIONS)))
@pytest.mark.parametrize("path", [MAPS, f"{MAPS}/a", f"{PODS}"])
async def test_deletions_that_make_no_sense_are_refused_and_delete_nothing(bench, path, body) -> None:
    await bench.call("POST", MAPS, {"metadata": {"name": "a"}})

    code, refused = await send(bench, "DELETE", path, body)

    assert (code, refused["reason"]) == (400, "BadRequest")
    assert (await bench.call("GET", f"{MAPS}/a"))[0] == 200


DEFINITIONS = [
    {},
    {"spec": {}},
    {"spec": {"group": "g.x", "scope": "Namespaced", "names": {}, "versions": []}},
    {"spec": {"group": "g.x", "names": {"kind": "K", "plural": "ks"}, "versions": [{"name": "v1"}]}},
    {
        "spec": {
            "group": "g.x",
            "names": {"kind": "K", "plural": "ks"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": 5}}],
        }
    },
]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=range(len(DEFINITIONS)))
async def test_definitions_that_cannot_work_are_refused(bench, definition) -> None:
    body = {"metadata": {"name": "ks.g.x"}, **definition}

    assert 400 <= (await bench.call("POST", CRDS, body))[0] < 500


async def test_a_body_of_any_size_is_refused_without_being_kept(bench) -> None:
    async def endless():
        for _ in range(64):
            yield b'{"data":"' + b"x" * (1 << 16)

    assert (await send(bench, "POST", MAPS, b"x" * (4 << 20)))[0] == 413
    async with bench.request("POST", MAPS, data=endless(), headers={"Content-Type": "application/json"}) as response:
        assert response.status == 413


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/cbor"])
async def test_bodies_in_other_formats_are_refused(bench, kind: str) -> None:
    assert (await send(bench, "POST", MAPS, b"{}", kind))[0] == 415


@pytest.mark.parametrize(
    "data",
    [
        b"k8s\0",
        b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"k8s\0\x08\x01",
    ],
)
async def test_protobuf_that_is_none_is_refused(bench, data: bytes) -> None:
    assert (await send(bench, "POST", PODS, data, "application/vnd.kubernetes.protobuf"))[0] == 400


PATHS = [
    "/api/v1/namespaces/default/pods/..",
    "/api/v1/namespaces/default/pods/%2e%2e%2f%2e%2e%2fca.key",
    "/api/v1/namespaces/default/configmaps/..%2f..%2fsecrets",
    "/api/v1//pods",
    "/api/v1/namespaces/default/nonsense",
    "/apis/nonsense/v1/things",
    "/openapi/v3/../../ca.key",
    "/openapi/v4",
    "/ca.key",
    "/%00",
    "/api/v1/namespaces/%ff/pods/%ff",
]


@pytest.mark.parametrize("path", PATHS)
async def test_paths_that_lead_nowhere_are_not_found(bench, path: str) -> None:
    from yarl import URL

    headers = {"Authorization": f"Bearer {bench.token}"}
    async with bench.http.get(URL(bench.server.url + path, encoded=True), headers=headers) as response:
        assert response.status in (400, 404)
        assert bench.token not in await response.text()


async def test_a_warning_stays_one_header_whatever_the_field_is_called(bench) -> None:
    body = {"metadata": {"name": "warned"}, 'x"\r\nSet-Cookie: y\u00e9': 1}
    async with bench.request("POST", MAPS, json=body) as response:
        assert response.status == 201
        assert "Set-Cookie" not in response.headers
        assert len(response.headers.getall("Warning")) == 1
