"""The official Python client, typed and dynamic, as real programs use it."""

from __future__ import annotations

import asyncio
import sys

import pytest


@pytest.fixture
async def api(bench, monkeypatch):
    # A command that ran in this process has declared that nothing else uses the package, whose root was not imported.
    monkeypatch.delitem(sys.modules, "kubernetes", raising=False)
    from kubernetes import client

    configuration = client.Configuration()
    configuration.host = bench.server.url
    configuration.ssl_ca_cert = str(bench.server.ca)
    configuration.api_key = {"authorization": f"Bearer {bench.token}"}
    configuration.api_key_prefix = {}
    api = client.ApiClient(configuration)
    yield api
    await asyncio.to_thread(api.close)


async def test_the_typed_client_makes_reads_patches_and_deletes_a_job(bench, api) -> None:
    from kubernetes import client

    def work() -> None:
        batch = client.BatchV1Api(api)
        container = client.V1Container(name="main", image="x:1")
        template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[container], restart_policy="Never"))
        job = client.V1Job(metadata=client.V1ObjectMeta(name="j"), spec=client.V1JobSpec(template=template))
        made = batch.create_namespaced_job("default", job)
        assert made.spec.backoff_limit == 6
        listed = batch.list_namespaced_job("default", label_selector="job-name=j").items
        assert [each.metadata.uid for each in listed] == [made.metadata.uid]
        patched = batch.patch_namespaced_job("j", "default", {"spec": {"parallelism": 0}})
        assert patched.spec.parallelism == 0
        batch.delete_namespaced_job("j", "default", propagation_policy="Background")
        with pytest.raises(client.ApiException) as missing:
            batch.read_namespaced_job("j", "default")
        assert missing.value.status == 404

    await asyncio.to_thread(work)


async def test_the_typed_client_lists_pods_reads_logs_and_asks_for_permission(bench, api) -> None:
    from kubernetes import client

    await bench.running_pod("p", app="web")

    def work() -> None:
        core = client.CoreV1Api(api)
        pod = core.list_namespaced_pod("default", field_selector="status.phase=Running").items[0]
        assert (pod.metadata.name, pod.status.container_statuses[0].ready) == ("p", True)
        assert core.read_namespaced_pod_log("p", "default") == "hello\n"
        attributes = client.V1ResourceAttributes(verb="create", resource="jobs", group="batch", namespace="default")
        review = client.V1SelfSubjectAccessReview(
            spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
        )
        answer = client.AuthorizationV1Api(api).create_self_subject_access_review(review)
        assert answer.status.allowed
        assert core.list_node().items == []

    await asyncio.to_thread(work)


async def test_the_typed_client_watches(bench, api) -> None:
    from kubernetes import client, watch

    await bench.running_pod("p")

    def work() -> list[tuple[str, str]]:
        seen = []
        watcher = watch.Watch()
        for event in watcher.stream(client.CoreV1Api(api).list_namespaced_pod, "default", timeout_seconds=60):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 1:
                client.CoreV1Api(api).delete_namespaced_pod("p", "default", grace_period_seconds=0)
            else:
                watcher.stop()
        return seen

    assert await asyncio.to_thread(work) == [("ADDED", "p"), ("DELETED", "p")]


async def test_the_dynamic_client_finds_jobsets(bench, api) -> None:
    from kubernetes import dynamic

    def work() -> None:
        sets = dynamic.DynamicClient(api).resources.get(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet")
        body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"}, "spec": {}}
        sets.create(body=body, namespace="default")
        assert [each.metadata.name for each in sets.get(namespace="default").items] == ["s"]
        assert sets.patch(
            name="s", namespace="default", body={"spec": {"suspend": True}}, content_type="application/merge-patch+json"
        ).spec.suspend
        sets.delete(name="s", namespace="default")

    await asyncio.to_thread(work)
