from __future__ import annotations

import json

import pytest

from pathways_jupyter.local.apiserver.watch_delivery import Watch

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


async def fill(bench, count: int) -> None:
    for number in range(count):
        body = {"metadata": {"name": f"m{number}", "labels": {"n": str(number), "even": str(number % 2 == 0)}}}
        code, _ = await bench.call("POST", MAPS, body)
        assert code == 201


async def lines(response, count: int):
    return [json.loads(await response.content.readline()) for _ in range(count)]


async def test_an_object_is_made_read_replaced_patched_and_deleted(bench) -> None:
    code, made = await bench.call("POST", MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    assert (code, made["kind"], made["metadata"]["namespace"]) == (201, "ConfigMap", "default")

    assert await bench.call("GET", f"{MAPS}/a") == (200, made)
    code, replaced = await bench.call("PUT", f"{MAPS}/a", {**made, "data": {"x": "2"}})
    assert (code, replaced["data"]) == (200, {"x": "2"})
    code, refused = await bench.call("PUT", f"{MAPS}/a", {**made, "data": {"x": "3"}})
    assert (code, refused["reason"]) == (409, "Conflict")
    headers = {"Content-Type": "application/merge-patch+json"}
    code, patched = await bench.call("PATCH", f"{MAPS}/a", {"data": {"x": None, "y": "1"}}, headers=headers)
    assert (code, patched["data"]) == (200, {"y": "1"})
    code, gone = await bench.call("DELETE", f"{MAPS}/a")
    assert (code, gone["status"], gone["details"]["uid"]) == (200, "Success", made["metadata"]["uid"])
    code, refused = await bench.call("GET", f"{MAPS}/a")
    assert (code, refused["reason"], refused["message"]) == (404, "NotFound", 'configmaps "a" not found')


async def test_lists_are_selected_by_labels_and_fields(bench) -> None:
    await fill(bench, 4)

    async def found(**query: str) -> list[str]:
        code, answer = await bench.call("GET", MAPS, params=query)
        assert code == 200
        return [each["metadata"]["name"] for each in answer["items"]]

    assert await found() == ["m0", "m1", "m2", "m3"]
    assert await found(labelSelector="n in (1, 2),even") == ["m1", "m2"]
    assert await found(fieldSelector="metadata.name=m3") == ["m3"]
    assert await found(fieldSelector="metadata.name!=m3,metadata.namespace=default") == ["m0", "m1", "m2"]


@pytest.mark.parametrize(
    "query",
    [
        "labelSelector=(",
        "fieldSelector=x",
        "fieldSelector=spec.nope=1",
        "limit=x",
        "resourceVersion=abc",
        "continue=abc",
        "continue=e30=",
    ],
)
async def test_a_list_that_cannot_be_understood_is_a_bad_request(bench, query: str) -> None:
    code, refused = await bench.call("GET", f"{MAPS}?{query}")

    assert (code, refused["reason"]) == (400, "BadRequest")


async def test_pages_give_everything_once_and_the_revision_of_the_first(bench) -> None:
    await fill(bench, 5)
    query = {"limit": "2"}
    names, revisions = [], set()
    while True:
        _, page = await bench.call("GET", MAPS, params=query)
        names += [each["metadata"]["name"] for each in page["items"]]
        revisions.add(page["metadata"]["resourceVersion"])
        if "continue" not in page["metadata"]:
            break
        await bench.call("POST", MAPS, {"metadata": {"generateName": "a"}})
        query["continue"] = page["metadata"]["continue"]

    assert names == ["m0", "m1", "m2", "m3", "m4"]
    assert len(revisions) == 1


async def test_a_watch_goes_on_from_the_list_before_it(bench) -> None:
    await fill(bench, 2)
    _, listed = await bench.call("GET", MAPS)
    query = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"], "labelSelector": "n"}
    async with bench.request("GET", MAPS, params=query) as response:
        await bench.call("POST", MAPS, {"metadata": {"name": "unseen"}})
        await bench.call("DELETE", f"{MAPS}/m0")
        await bench.call("POST", MAPS, {"metadata": {"name": "new", "labels": {"n": "9"}}})
        changes = await lines(response, 2)

    assert [(each["type"], each["object"]["metadata"]["name"]) for each in changes] == [
        ("DELETED", "m0"),
        ("ADDED", "new"),
    ]
    assert changes[1]["object"]["kind"] == "ConfigMap"


async def test_a_watch_ends_when_its_time_is_over(bench) -> None:
    async with bench.request("GET", f"{MAPS}?watch=true&timeoutSeconds=1") as response:
        assert await response.read() == b""


async def test_a_watch_can_send_what_there_is_first_and_say_when_that_was_all(bench) -> None:
    await fill(bench, 2)
    query = {"watch": "1", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    async with bench.request("GET", MAPS, params=query) as response:
        changes = await lines(response, 3)

    assert [each["type"] for each in changes] == ["ADDED", "ADDED", "BOOKMARK"]
    assert changes[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_every_patch_has_its_own_way_with_lists(bench) -> None:
    await bench.running_pod("p")
    containers = {"spec": {"containers": [{"name": "main", "image": "registry/thing:2"}]}}

    async def patch(kind: str, body):
        return await bench.call("PATCH", f"{PODS}/p", body, headers={"Content-Type": f"application/{kind}+json"})

    code, pod = await patch("strategic-merge-patch", containers)
    assert (code, pod["spec"]["containers"][0]["image"]) == (200, "registry/thing:2")
    assert pod["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    code, refused = await patch("merge-patch", containers)
    assert code == 422, refused
    code, _ = await patch("json-patch", [{"op": "remove", "path": "/metadata/labels"}])
    assert code == 415


async def test_custom_resources_take_no_strategic_patch(bench) -> None:
    sets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    await bench.call("POST", sets, {"metadata": {"name": "s"}, "spec": {}})

    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    code, _ = await bench.call("PATCH", f"{sets}/s", {"spec": {}}, headers=headers)

    assert code == 415


async def test_custom_resources_are_checked_against_their_schema(bench) -> None:
    sets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    body = {"metadata": {"name": "s"}, "spec": {"replicatedJobs": [{"name": "w", "replicas": -1}], "nope": 1}}
    code, refused = await bench.call("POST", sets, body)
    assert (code, refused["reason"]) == (400, "BadRequest")
    assert "Object 'Kind' is missing" in refused["message"]
    body["kind"] = "JobSet"

    code, refused = await bench.call("POST", sets, body)

    assert code == 422
    fields = {cause["field"] for cause in refused["details"]["causes"]}
    assert fields == {"spec.replicatedJobs[0].replicas", "spec.replicatedJobs[0].template"}


@pytest.mark.parametrize(("mode", "code"), [("Strict", 400), ("Warn", 201), ("Ignore", 201), ("", 201)])
async def test_unknown_fields_are_refused_warned_of_or_dropped(bench, mode: str, code: int) -> None:
    body = {"metadata": {"name": "a"}, "data": {}, "spec": {"x": 1}}
    async with bench.request("POST", f"{MAPS}?fieldValidation={mode}", json=body) as response:
        answer = await response.json()
        warning = response.headers.get("Warning", "")

    assert response.status == code
    assert "spec" not in answer
    assert ('unknown field \\"spec\\"' in warning) is (mode in ("Warn", ""))


async def test_what_is_applied_is_merged_with_a_warning(bench) -> None:
    async def apply(path: str, body) -> tuple[int, dict, str]:
        kind, query = {"Content-Type": "application/apply-patch+yaml"}, "fieldManager=m&force=true"
        async with bench.request("PATCH", f"{path}?{query}", json=body, headers=kind) as response:
            return response.status, await response.json(), response.headers.get("Warning", "")

    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    assert (await apply(f"{MAPS}/a", body))[0] == 201
    code, merged, warning = await apply(f"{MAPS}/a", {**body, "data": {"y": "2"}})
    assert (code, merged["data"]) == (200, {"x": "1", "y": "2"})
    assert "fields have no owners" in warning
    await bench.running_pod("p")
    for kind in ("Ready", "Mine"):
        status = {"conditions": [{"type": kind, "status": "True"}]}
        code, pod, _ = await apply(f"{PODS}/p/status", {"metadata": {"name": "p"}, "status": status})
    assert (code, {each["type"] for each in pod["status"]["conditions"]}) == (200, {"Ready", "Mine"})
    assert (await apply(f"{PODS}/q/status", {"metadata": {"name": "q"}, "status": status}))[0] == 404


async def test_a_dry_run_changes_nothing(bench) -> None:
    code, _ = await bench.call("POST", f"{MAPS}?dryRun=All", {"metadata": {"name": "a"}})
    assert code == 201
    assert (await bench.call("GET", f"{MAPS}/a"))[0] == 404
    assert (await bench.call("POST", f"{MAPS}?dryRun=Some", {"metadata": {"name": "a"}}))[0] == 400


async def test_a_collection_is_deleted_by_selector(bench) -> None:
    await fill(bench, 4)

    code, gone = await bench.call("DELETE", f"{MAPS}?labelSelector=even=True")

    assert (code, len(gone["items"])) == (200, 2)
    assert [
        each["metadata"]["name"] for each in bench.store.list(bench.store.resources.find("", "v1", "configmaps"))
    ] == [
        "m1",
        "m3",
    ]


async def test_deleting_says_what_becomes_of_a_running_pod(bench) -> None:
    await bench.running_pod("p")

    code, pod = await bench.call("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 7, "propagationPolicy": "Background"})
    assert (code, pod["metadata"]["deletionGracePeriodSeconds"]) == (200, 7)
    code, _ = await bench.call("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    assert (code, (await bench.call("GET", f"{PODS}/p"))[0]) == (200, 404)


async def test_a_pod_is_evicted(bench) -> None:
    await bench.running_pod("p")

    code, _ = await bench.call("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}})
    assert (code, "deletionTimestamp" in (await bench.call("GET", f"{PODS}/p"))[1]["metadata"]) == (201, True)


async def test_place_and_body_must_agree(bench) -> None:
    bodies = ({"metadata": {"name": "a", "namespace": "other"}}, {"kind": "Pod"}, {"apiVersion": "v2"})
    for body in bodies:
        code, refused = await bench.call("POST", MAPS, body)
        assert (code, refused["reason"]) == (400, "BadRequest")
    await fill(bench, 1)
    code, refused = await bench.call("PUT", f"{MAPS}/m0", {"metadata": {"name": "m1"}})
    assert code == 400
    assert "does not match the name on the URL" in refused["message"]


async def test_replacing_fills_in_what_creating_does(bench, pod_manifest) -> None:
    _, made = await bench.call("POST", PODS, pod_manifest("p"))
    made["metadata"]["labels"] = {"a": "b"}
    del made["spec"]["dnsPolicy"], made["spec"]["schedulerName"]

    code, pod = await bench.call("PUT", f"{PODS}/p", made)
    assert (code, pod["metadata"]["labels"], pod["spec"]["dnsPolicy"]) == (200, {"a": "b"}, "ClusterFirst")
    for place in (PODS, "/apis/batch/v1/namespaces/default/jobs"):
        template = {"spec": {**pod_manifest("x")["spec"], "restartPolicy": "Never"}}
        await bench.call("POST", place, {"metadata": {"name": "p"}, "spec": {"template": template}})
        assert (await bench.call("PUT", f"{place}/p", {"metadata": {"name": "p"}}))[0] == 422


@pytest.mark.parametrize(("limit", "sizes"), [(1, [1, 1]), (2, [2]), (3, [2])])
async def test_a_page_that_is_the_last_says_so(bench, limit: int, sizes: list[int]) -> None:
    for name in ("a", "b"):
        await bench.call("POST", MAPS, {"metadata": {"name": name}})
    found, token = [], ""
    while token or not found:
        _, page = await bench.call("GET", f"{MAPS}?limit={limit}&continue={token}")
        found.append(len(page["items"]))
        token = page["metadata"].get("continue", "")

    assert found == sizes


async def test_a_bookmark_does_not_come_before_a_change_that_it_includes(bench, monkeypatch) -> None:
    batch, late = Watch.batch, []

    async def batch_in_the_moment_of_the_timeout(self):
        if late:
            return await batch(self)
        late.append(self)
        changes = await batch(self)
        self._queue = changes
        raise TimeoutError

    monkeypatch.setattr(Watch, "batch", batch_in_the_moment_of_the_timeout)
    query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": str(bench.store.revision)}
    async with bench.request("GET", MAPS, params=query) as response:
        await fill(bench, 1)
        assert [each["type"] for each in await lines(response, 1)] == ["ADDED"]
    assert late
