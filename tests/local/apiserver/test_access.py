from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import stat

import psutil
import pytest

PODS = "/api/v1/namespaces/default/pods"
READ_PODS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]


@pytest.mark.parametrize("header", ["Bearer", "Bearer nope", "Bearer \xff"])
async def test_a_token_that_is_not_valid_is_refused_everywhere(bench, header) -> None:
    headers = {"Authorization": header}
    for path in ("/", "/api", "/version", "/healthz", "/openapi/v3", PODS, "/nonsense"):
        async with bench.http.get(bench.server.url + path, headers=headers) as response:
            answer = await response.json()
        assert (response.status, answer["reason"], answer["message"]) == (401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize("header", [None, "", "Basic YTpi"])
async def test_without_a_token_one_is_anonymous_and_may_ask_for_health_and_version_alone(bench, header) -> None:
    headers = {} if header is None else {"Authorization": header}
    for path in ("/", "/api", "/openapi/v3", "/nonsense", PODS, "/api/v1/namespaces/default/secrets/s"):
        async with bench.http.get(bench.server.url + path, headers=headers) as response:
            answer = await response.json()
        assert (response.status, answer["reason"]) == (403, "Forbidden")
        assert 'User "system:anonymous" cannot' in answer["message"]
    about_oneself = bench.server.url + "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    async with bench.http.post(about_oneself, json={}, headers=headers) as response:
        assert response.status == 403
    for path in ("/version", "/healthz", "/livez", "/readyz"):
        async with bench.http.get(bench.server.url + path, headers=headers) as response:
            assert response.status == 200
    role = {"metadata": {"name": "open"}, "rules": READ_PODS}
    subjects = [{"kind": "Group", "name": "system:unauthenticated", "apiGroup": "rbac.authorization.k8s.io"}]
    bound = {"metadata": {"name": "open"}, "subjects": subjects}
    bound["roleRef"] = {"kind": "Role", "name": "open", "apiGroup": "rbac.authorization.k8s.io"}
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    assert (await bench.call("POST", f"{rbac}/roles", role))[0] == 201
    assert (await bench.call("POST", f"{rbac}/rolebindings", bound))[0] == 201
    async with bench.http.get(bench.server.url + PODS, headers=headers) as response:
        assert response.status == 200


async def test_a_token_may_do_what_its_rules_say_and_no_more(bench) -> None:
    token = bench.server.users.add("alice", READ_PODS)
    await bench.running_pod("p")

    assert (await bench.call("GET", PODS, token=token))[0] == 200
    assert (await bench.call("GET", f"{PODS}/p", token=token))[0] == 200
    code, refused = await bench.call("DELETE", f"{PODS}/p", token=token)
    assert (code, refused["reason"], refused["details"]) == (403, "Forbidden", {"kind": "pods", "name": "p"})
    assert refused["message"] == (
        'pods "p" is forbidden: User "alice" cannot delete resource "pods" in API group "" in the namespace "default"'
    )
    _, refused = await bench.call("GET", f"{PODS}/p/log", token=token)
    assert refused["message"] == (
        'pods "p" is forbidden: User "alice" cannot get resource "pods/log" in API group "" in the namespace "default"'
    )
    _, refused = await bench.call("GET", "/apis/batch/v1/jobs", token=token)
    assert refused["message"] == (
        'jobs.batch is forbidden: User "alice" cannot list resource "jobs" in API group "batch" at the cluster scope'
    )


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, True),
        ({"apiGroups": [""], "resources": ["pods/*"], "verbs": ["*"]}, False),
        ({"apiGroups": [""], "resources": ["*"], "verbs": ["get"], "resourceNames": ["p"]}, True),
        ({"apiGroups": [""], "resources": ["*"], "verbs": ["get"], "resourceNames": ["q"]}, False),
        ({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "namespaces": ["other"]}, False),
        ({"apiGroups": ["batch"], "resources": ["pods"], "verbs": ["get"]}, False),
        ({"nonResourceURLs": ["*"], "verbs": ["*"]}, False),
    ],
)
async def test_asking_gives_the_answer_that_doing_would_give(bench, rule, allowed: bool) -> None:
    await bench.running_pod("p")
    token = bench.server.users.add("bob", [rule])
    attributes = {"verb": "get", "resource": "pods", "namespace": "default", "name": "p"}

    review = {"spec": {"resourceAttributes": attributes}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    code, answer = await bench.call("POST", path, review, token=token)

    assert (code, answer["status"]["allowed"]) == (201, allowed)
    assert ((await bench.call("GET", f"{PODS}/p", token=token))[0] == 200) is allowed


async def test_secret_files_are_their_owners_alone(bench) -> None:
    for name in ("ca.key", "ca.crt"):
        assert stat.S_IMODE((bench.directory / name).stat().st_mode) == 0o600


async def test_it_listens_on_loopback_only(bench) -> None:
    pid = os.getpid()
    listening = {
        each.laddr.ip for each in psutil.Process(pid).net_connections("tcp") if each.laddr.port == bench.server.port
    }

    assert listening == {"127.0.0.1"}
    with socket.socket() as other:
        other.settimeout(5)
        assert other.connect_ex(("127.0.0.2", bench.server.port)) != 0


async def test_plain_http_gets_no_answer(bench) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", bench.server.port)
    writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        assert b"HTTP" not in await reader.read()
    writer.close()


async def test_roles_give_what_a_token_was_not_made_with(bench) -> None:
    token = bench.server.users.add("system:serviceaccount:default:robot", [])
    await bench.running_pod("p")
    assert (await bench.call("GET", f"{PODS}/p", token=token))[0] == 403
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"metadata": {"name": "r"}, "rules": READ_PODS}
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [subject],
    }
    assert (await bench.call("POST", f"{rbac}/namespaces/default/roles", role))[0] == 201
    assert (await bench.call("POST", f"{rbac}/namespaces/default/rolebindings", binding))[0] == 201

    assert (await bench.call("GET", f"{PODS}/p", token=token))[0] == 200
    assert (await bench.call("GET", "/api/v1/pods", token=token))[0] == 403
    assert (await bench.call("DELETE", f"{PODS}/p", token=token))[0] == 403
    binding["roleRef"]["kind"] = "ClusterRole"
    await bench.call("POST", f"{rbac}/clusterroles", role)
    assert (await bench.call("POST", f"{rbac}/clusterrolebindings", binding))[0] == 201
    assert (await bench.call("GET", "/api/v1/pods", token=token))[0] == 200
    await bench.call("DELETE", f"{rbac}/clusterrolebindings/b")
    assert (await bench.call("GET", "/api/v1/pods", token=token))[0] == 403


@pytest.mark.parametrize("header", ["Impersonate-User", "impersonate-group", "Impersonate-Extra-a"])
async def test_a_request_on_behalf_of_another_user_is_refused(bench, header) -> None:
    code, refused = await bench.call("GET", PODS, headers={header: "stranger"})

    assert (code, refused["reason"]) == (400, "BadRequest")
    assert "on behalf of another user" in refused["message"]


async def test_the_certificate_passes_strict_verification(bench) -> None:
    strict = ssl.create_default_context(cafile=bench.server.ca)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT

    async with bench.http.get(bench.server.url + "/version", ssl=strict) as response:
        assert response.status == 200


async def test_a_cluster_role_can_open_a_path_to_everyone(bench) -> None:
    rbac, group = "/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    role = {"metadata": {"name": "open"}, "rules": [{"nonResourceURLs": ["/api*"], "verbs": ["get"]}]}
    subject = {"kind": "Group", "name": "system:unauthenticated", "apiGroup": group}
    bound = {"metadata": {"name": "open"}, "roleRef": {"kind": "ClusterRole", "name": "open", "apiGroup": group}}
    await bench.call("POST", f"{rbac}/clusterroles", role)
    await bench.call("POST", f"{rbac}/clusterrolebindings", {**bound, "subjects": [subject]})

    async with bench.http.get(bench.server.url + "/apis") as opened, bench.http.get(bench.server.url + "/") as closed:
        assert (opened.status, closed.status) == (200, 403)
