"""The calls of the official Python client that programs make, one after the other, on one cluster."""

from __future__ import annotations

import asyncio

import pytest

META = {"name": "x"}
CONTAINER = {"name": "main", "image": "x:1"}
POD = {"metadata": {"name": "x", "labels": {"app": "x"}}, "spec": {"containers": [CONTAINER]}}
JOB = {"metadata": META, "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}}}
JOBSET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": META, "spec": {}}
KIND = ("jobset.x-k8s.io", "v1alpha2", "default", "jobsets")
SUBJECT = {"kind": "ServiceAccount", "name": "x", "namespace": "default"}
BOUND = {"roleRef": {"kind": "Role", "name": "x", "apiGroup": "rbac.authorization.k8s.io"}, "subjects": [SUBJECT]}
ATTRIBUTES = {"verb": "list", "resource": "pods", "namespace": "default"}
TIME = "2026-01-02T03:04:05.000006Z"
LEASE = {"metadata": META, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 60, "renewTime": TIME}}
EVENT = {"metadata": META, "involvedObject": {"kind": "Pod", "name": "x", "namespace": "default"}, "reason": "Tried"}
POLICY = {"metadata": META, "spec": {"podSelector": {}}}
PORT = {"spec": {"ports": [{"port": 80}], "selector": {"app": "x"}}}

CALLS = [
    ("VersionApi", "get_code", ()),
    ("CoreV1Api", "get_api_resources", ()),
    ("CoreV1Api", "list_namespace", ()),
    ("CoreV1Api", "create_namespace", ({"metadata": {"name": "other"}},)),
    ("CoreV1Api", "read_namespace", ("other",)),
    ("CoreV1Api", "list_namespaced_service_account", ("other",)),
    ("CoreV1Api", "create_namespaced_pod", ("other", POD)),
    ("CoreV1Api", "delete_collection_namespaced_pod", ("other",)),
    ("CoreV1Api", "delete_namespace", ("other",)),
    ("CoreV1Api", "list_node", ()),
    ("CoreV1Api", "create_namespaced_config_map", ("default", {"metadata": META, "data": {"a": "1"}})),
    ("CoreV1Api", "patch_namespaced_config_map", ("x", "default", {"data": {"b": "2"}})),
    ("CoreV1Api", "replace_namespaced_config_map", ("x", "default", {"metadata": META, "data": {"c": "3"}})),
    ("CoreV1Api", "delete_namespaced_config_map", ("x", "default")),
    ("CoreV1Api", "create_namespaced_secret", ("default", {"metadata": META, "stringData": {"a": "1"}})),
    ("CoreV1Api", "read_namespaced_secret", ("x", "default")),
    ("CoreV1Api", "create_namespaced_service_account", ("default", {"metadata": META})),
    ("AuthenticationV1Api", "create_self_subject_review", ({},)),
    ("CoreV1Api", "create_namespaced_pod", ("default", POD)),
    ("CoreV1Api", "list_namespaced_pod", ("default",)),
    ("CoreV1Api", "list_pod_for_all_namespaces", ()),
    ("CoreV1Api", "read_namespaced_pod_status", ("x", "default")),
    ("CoreV1Api", "patch_namespaced_pod", ("x", "default", {"metadata": {"labels": {"more": "1"}}})),
    ("CoreV1Api", "create_namespaced_event", ("default", EVENT)),
    ("CoreV1Api", "list_namespaced_event", ("default",)),
    ("CoreV1Api", "delete_namespaced_pod", ("x", "default")),
    ("CoreV1Api", "create_namespaced_service", ("default", {"metadata": META, **PORT})),
    ("CoreV1Api", "patch_namespaced_service", ("x", "default", {"metadata": {"labels": {"more": "1"}}})),
    ("CoreV1Api", "delete_namespaced_service", ("x", "default")),
    ("BatchV1Api", "create_namespaced_job", ("default", JOB)),
    ("BatchV1Api", "read_namespaced_job_status", ("x", "default")),
    ("BatchV1Api", "patch_namespaced_job", ("x", "default", {"spec": {"suspend": True}})),
    ("BatchV1Api", "list_job_for_all_namespaces", ()),
    ("BatchV1Api", "delete_namespaced_job", ("x", "default")),
    ("CoordinationV1Api", "create_namespaced_lease", ("default", LEASE)),
    ("CoordinationV1Api", "replace_namespaced_lease", ("x", "default", LEASE)),
    ("CoordinationV1Api", "patch_namespaced_lease", ("x", "default", {"spec": {"holderIdentity": "y"}})),
    ("RbacAuthorizationV1Api", "create_namespaced_role", ("default", {"metadata": META, "rules": []})),
    ("RbacAuthorizationV1Api", "create_namespaced_role_binding", ("default", {"metadata": META, **BOUND})),
    ("AuthorizationV1Api", "create_self_subject_access_review", ({"spec": {"resourceAttributes": ATTRIBUTES}},)),
    (
        "NetworkingV1Api",
        "create_namespaced_network_policy",
        ("default", {"metadata": META, "spec": {"podSelector": {}}}),
    ),
    ("ApiextensionsV1Api", "list_custom_resource_definition", ()),
    ("CustomObjectsApi", "create_namespaced_custom_object", (*KIND, JOBSET)),
    ("CustomObjectsApi", "get_namespaced_custom_object", (*KIND, "x")),
    ("CustomObjectsApi", "list_namespaced_custom_object", KIND),
    ("CustomObjectsApi", "patch_namespaced_custom_object", (*KIND, "x", {"spec": {"suspend": True}})),
    ("CustomObjectsApi", "delete_namespaced_custom_object", (*KIND, "x")),
]


@pytest.mark.timeout(200)
async def test_every_call_is_served(bench) -> None:
    from kubernetes import client

    configuration = client.Configuration(host=bench.server.url)
    configuration.ssl_ca_cert = str(bench.server.ca)
    configuration.api_key = {"authorization": f"Bearer {bench.token}"}

    def work() -> list[str]:
        failed = []
        with client.ApiClient(configuration) as api:
            for group, name, arguments in CALLS:
                try:
                    getattr(getattr(client, group)(api), name)(*arguments)
                except client.ApiException as error:
                    failed.append(f"{name}: {error.status} {error.body}")
        return failed

    assert len(CALLS) == 47
    assert await asyncio.to_thread(work) == []
