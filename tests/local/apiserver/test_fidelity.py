"""Differences that would let a client pass on the embedded API and fail on a real one."""

from __future__ import annotations

import json
import shutil

import pytest

BASE = "/api/v1/namespaces/default"
MAPS, PODS, SERVICES = f"{BASE}/configmaps", f"{BASE}/pods", f"{BASE}/services"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = {"Content-Type": "application/merge-patch+json"}
TIME = "2026-01-02T03:04:05.000006Z"

kubectl_needed = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def job(name: str = "j", **spec):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def lease(**spec):
    return {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 60, "renewTime": TIME, **spec}}


async def test_items_of_lists_of_built_in_types_do_not_repeat_their_kind(bench, pod_manifest) -> None:
    await bench.call("POST", PODS, pod_manifest("p"))
    await bench.call("POST", JOBSETS, {"kind": "JobSet", "metadata": {"name": "s"}, "spec": {"replicatedJobs": []}})

    for path in (PODS, "/api/v1/namespaces", CRDS):
        _, listed = await bench.call("GET", path)
        assert listed["kind"].endswith("List")
        assert listed["items"]
        assert not any({"kind", "apiVersion"} & set(item) for item in listed["items"])
    _, listed = await bench.call("GET", JOBSETS)
    assert [item["kind"] for item in listed["items"]] == ["JobSet"]
    _, deleted = await bench.call("DELETE", f"{PODS}?labelSelector=!x")
    assert not {"kind", "apiVersion"} & set(deleted["items"][0])


@pytest.mark.parametrize(
    ("spec", "code", "word"),
    [
        ({}, 201, ""),
        ({"renewTime": "2026-01-02T03:04:05.000006+01:00"}, 201, ""),
        ({"renewTime": "2026-01-02T03:04:05Z"}, 400, "microseconds"),
        ({"renewTime": "2026-01-02T03:04:05.123Z"}, 400, "microseconds"),
        ({"acquireTime": "2026-01-02T03:04:05Z"}, 400, "microseconds"),
        ({"acquireTime": "soon"}, 400, "time"),
    ],
)
async def test_leases_have_times_with_microseconds(bench, spec, code, word) -> None:
    status, answer = await bench.call("POST", LEASES, lease(**spec))

    assert status == code, answer
    assert word in answer.get("message", "")
    if code != 201:
        await bench.call("POST", LEASES, lease())
        patched, _ = await bench.call("PATCH", f"{LEASES}/l", {"spec": spec}, headers=MERGE)
        assert patched == code


async def test_what_is_created_has_no_resource_version_yet(bench) -> None:
    code, refused = await bench.call("POST", MAPS, {"metadata": {"name": "a", "resourceVersion": "1"}})

    assert (code, refused["message"]) == (500, "resourceVersion should not be set on objects to be created")
    assert (await bench.call("GET", f"{MAPS}/a"))[0] == 404


async def test_only_some_kinds_count_generations(bench, pod_manifest) -> None:
    for path, body, generation in (
        (MAPS, {"metadata": {"name": "a"}}, None),
        (SERVICES, {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}}, None),
        (LEASES, lease(), None),
        (PODS, pod_manifest("p"), 1),
        (JOBS, job(), 1),
        (JOBSETS, {"kind": "JobSet", "metadata": {"name": "s"}, "spec": {"replicatedJobs": []}}, 1),
    ):
        code, made = await bench.call("POST", path, body)
        assert (code, made["metadata"].get("generation")) == (201, generation), path
    _, changed = await bench.call("PATCH", f"{MAPS}/a", {"data": {"x": "y"}}, headers=MERGE)
    assert "generation" not in changed["metadata"]
    _, changed = await bench.call("PATCH", f"{JOBS}/j", {"metadata": {"labels": {"a": "b"}}}, headers=MERGE)
    assert changed["metadata"]["generation"] == 1
    _, changed = await bench.call("PATCH", f"{JOBS}/j", {"spec": {"parallelism": 2}}, headers=MERGE)
    assert changed["metadata"]["generation"] == 2
    # Being given a node is not a change of what was asked for.
    pods = bench.store.resources.find("", "v1", "pods")
    bench.store.edit(pods, "default", "p", lambda pod: pod["spec"].update(nodeName="n"), subresource="binding")
    _, bound = await bench.call("GET", f"{PODS}/p")
    assert (bound["spec"]["nodeName"], bound["metadata"]["generation"]) == ("n", 1)


async def test_a_pod_gets_its_node_from_a_binding_alone(bench, pod_manifest) -> None:
    await bench.call("POST", PODS, pod_manifest("p"))

    code, refused = await bench.call("PATCH", f"{PODS}/p", {"spec": {"nodeName": "n"}}, headers=MERGE)

    assert (code, refused["reason"]) == (422, "Invalid")
    assert "pod updates may not change fields other than" in refused["message"]
    assert "nodeName" not in (await bench.call("GET", f"{PODS}/p"))[1]["spec"]


def pod(**container):
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "x", **container}]}}


def definition(version):
    names = {"kind": "K", "plural": "ks"}
    versions = [{"name": "v1", "served": True, "storage": True, **version}]
    return {
        "metadata": {"name": "ks.g.x"},
        "spec": {"group": "g.x", "names": names, "scope": "Namespaced", "versions": versions},
    }


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (PODS, pod(ports=[{"containerPort": 99999}]), "spec.containers[0].ports[0].containerPort"),
        (JOBS, job(completionMode="Perhaps"), "spec.completionMode"),
        (CRDS, definition({}), "spec.versions[0].schema.openAPIV3Schema"),
    ],
)
async def test_what_a_real_api_server_refuses_is_refused(bench, path, body, field) -> None:
    code, refused = await bench.call("POST", path, body)

    assert (code, [cause["field"] for cause in refused["details"].get("causes", ())]) == (422, [field]), refused


async def test_what_is_just_within_the_rules_is_taken(bench) -> None:
    resources = {"limits": {"cpu": "0.7", "memory": "1Gi"}, "requests": {"cpu": "700m", "memory": "1e9"}}
    within = pod(resources=resources, ports=[{"containerPort": 65535}], env=[{"name": "A"}])
    assert (await bench.call("POST", PODS, within))[0] == 201
    headless = {"metadata": {"name": "s"}, "spec": {"clusterIP": "None"}}
    assert (await bench.call("POST", SERVICES, headless))[0] == 201


async def test_pods_jobs_and_services_have_the_defaults_that_clients_read(bench) -> None:
    _, made = await bench.call("POST", PODS, pod(resources={"limits": {"cpu": "2"}}))
    wanted = {
        "serviceAccountName": "default",
        "serviceAccount": "default",
    }
    assert wanted.items() <= made["spec"].items()
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
    _, made = await bench.call("POST", JOBS, job())
    assert not set(wanted) & set(made["spec"]["template"]["spec"])
    _, made = await bench.call("POST", SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}})
    spec = made["spec"]
    assert spec["clusterIP"].startswith("10.96.")
    assert (spec["clusterIPs"], spec["ipFamilies"]) == ([spec["clusterIP"]], ["IPv4"])
    _, again = await bench.call("PUT", f"{SERVICES}/s", made)
    assert again["spec"] == spec


async def test_an_unknown_field_is_named_before_a_missing_one(bench) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"nope": 1}}

    code, refused = await bench.call("POST", f"{PODS}?fieldValidation=Strict", body)

    assert code == 400
    assert 'strict decoding error: unknown field "spec.nope"' in refused["message"]


@kubectl_needed
async def test_kubectl_shows_lists_as_before(bench) -> None:
    await bench.running_pod("p")
    await bench.running_pod("q")

    listed = json.loads(await bench.kubectl("get", "pods", "-o", "json"))
    assert [(item["kind"], item["apiVersion"]) for item in listed["items"]] == [("Pod", "v1")] * 2


async def test_a_pod_needs_a_service_account_that_exists(bench, pod_manifest) -> None:
    pod = pod_manifest("p")
    pod["spec"]["serviceAccountName"] = "typo"
    code, refused = await bench.call("POST", "/api/v1/namespaces/default/pods", pod)
    assert (code, refused["reason"]) == (403, "Forbidden")
    assert refused["message"] == (
        'pods "p" is forbidden: error looking up service account default/typo: serviceaccount "typo" not found'
    )


async def test_some_namespaces_stay_and_one_that_ends_takes_nothing_new(bench) -> None:
    for name in ("default", "kube-system"):
        code, refused = await bench.call("DELETE", f"/api/v1/namespaces/{name}")
        assert (code, refused["message"]) == (
            403,
            f'namespaces "{name}" is forbidden: this namespace may not be deleted',
        )
    assert (await bench.call("DELETE", "/api/v1/namespaces"))[0] == 405
    assert (await bench.call("POST", "/api/v1/namespaces", {"metadata": {"name": "short"}}))[0] == 201
    accounts = (await bench.call("GET", "/api/v1/namespaces/short/serviceaccounts"))[1]["items"]
    assert [each["metadata"]["name"] for each in accounts] == ["default"]
    pods = "/api/v1/namespaces/short/pods"
    held = {**pod(), "metadata": {"name": "p", "finalizers": ["example.org/held"]}}
    assert (await bench.call("POST", pods, held))[0] == 201
    _, ending = await bench.call("DELETE", "/api/v1/namespaces/short")
    assert ending["status"]["phase"] == "Terminating"
    assert (await bench.call("GET", "/api/v1/namespaces/short/serviceaccounts"))[1]["items"] == []
    code, refused = await bench.call("POST", "/api/v1/namespaces/short/configmaps", {"metadata": {"name": "late"}})
    assert code == 403
    assert "because it is being terminated" in refused["message"]
    assert (await bench.call("PATCH", f"{pods}/p", {"metadata": {"finalizers": None}}, headers=MERGE))[0] == 200
    assert (await bench.call("GET", "/api/v1/namespaces/short"))[0] == 404


async def test_every_object_says_when_the_server_received_its_last_change(bench) -> None:
    _, made = await bench.call("POST", LEASES, lease())
    (entry,) = made["metadata"]["managedFields"]
    assert entry["time"] == made["metadata"]["creationTimestamp"]

    forged = {"metadata": {"managedFields": [{"time": "2099-01-01T00:00:00Z"}]}}
    _, same = await bench.call("PATCH", f"{LEASES}/l", forged, headers=MERGE)
    assert same == made
