"""Requests on behalf of another user: ``kubectl --as``."""

from __future__ import annotations

import shutil

import pytest

PODS = "/api/v1/namespaces/default/pods"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}

kubectl_needed = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def impersonate(**rule):
    return {"apiGroups": [""], "verbs": ["impersonate"], **rule}


async def bind(bench, kind: str, name: str) -> None:
    """Let a user or group read pods of the namespace."""
    await bench.call("POST", f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "r"}, "rules": [READ_PODS]})
    subject = {"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    body = {"metadata": {"name": "b"}, "roleRef": role, "subjects": [subject]}
    assert (await bench.call("POST", f"{RBAC}/namespaces/default/rolebindings", body))[0] == 201


async def test_an_administrator_as_another_may_what_the_other_may(bench) -> None:
    await bench.running_pod("p")
    await bind(bench, "User", "reader")
    stranger, reader = ({"Impersonate-User": name} for name in ("stranger", "reader"))

    code, refused = await bench.call("DELETE", f"{PODS}/p", headers=stranger)
    assert (code, refused["reason"]) == (403, "Forbidden")
    assert 'User "stranger" cannot delete resource "pods"' in refused["message"]
    assert (await bench.call("GET", f"{PODS}/p", headers=stranger))[0] == 403
    assert (await bench.call("GET", f"{PODS}/p", headers=reader))[0] == 200
    assert (await bench.call("DELETE", f"{PODS}/p", headers=reader))[0] == 403
    assert bench.store.find(bench.store.resources.find("", "v1", "pods"), "default", "p") is not None


async def test_groups_count_and_the_masters_may_everything(bench) -> None:
    await bench.running_pod("p")
    await bind(bench, "Group", "readers")

    async def code(group: str) -> int:
        headers = {"Impersonate-User": "stranger", "Impersonate-Group": group}
        return (await bench.call("GET", f"{PODS}/p", headers=headers))[0]

    assert [await code(group) for group in ("writers", "readers", "system:masters")] == [403, 200, 200]


async def test_what_came_with_a_users_token_is_the_users(bench) -> None:
    bench.server.add_token("reader", [READ_PODS])

    assert (await bench.call("GET", PODS, headers={"Impersonate-User": "reader"}))[0] == 200
    assert (await bench.call("GET", PODS, headers={"Impersonate-User": "reader2"}))[0] == 403


async def test_a_tunnel_is_for_the_other_user_too(bench, echo) -> None:
    await bench.running_pod("p")
    headers = {"Authorization": f"Bearer {bench.token}", "Impersonate-User": "stranger"}
    url = f"{bench.server.url}{PODS}/p/portforward?ports={echo}"

    async with bench.http.get(url, headers={**headers, "Connection": "Upgrade", "Upgrade": "websocket"}) as response:
        assert response.status == 403


@pytest.mark.parametrize(
    ("rules", "headers", "refused"),
    [
        ([], {"Impersonate-User": "bob"}, 'users "bob"'),
        ([impersonate(resources=["users"])], {"Impersonate-User": "bob"}, ""),
        ([impersonate(resources=["users"], resourceNames=["eve"])], {"Impersonate-User": "bob"}, 'users "bob"'),
        ([impersonate(resources=["users"])], {"Impersonate-User": "b", "Impersonate-Group": "g"}, 'groups "g"'),
        ([impersonate(resources=["users", "groups"])], {"Impersonate-User": "b", "Impersonate-Group": "g"}, ""),
        (
            [impersonate(resources=["users"])],
            {"Impersonate-User": "system:serviceaccount:default:a"},
            'serviceaccounts "a"',
        ),
        ([impersonate(resources=["serviceaccounts"])], {"Impersonate-User": "system:serviceaccount:default:a"}, ""),
        (
            [impersonate(resources=["users"])],
            {"Impersonate-User": "b", "Impersonate-Uid": "7"},
            'uids.authentication.k8s.io "7"',
        ),
        (
            [impersonate(resources=["users"])],
            {"Impersonate-User": "b", "Impersonate-Extra-Scopes": "all"},
            'userextras/scopes.authentication.k8s.io "all"',
        ),
    ],
)
async def test_to_be_another_user_is_a_right_of_its_own(bench, rules, headers, refused) -> None:
    token = bench.server.add_token("alice", rules)

    code, answer = await bench.call("POST", REVIEWS, {}, token=token, headers=headers)

    if refused:
        assert (code, answer["reason"]) == (403, "Forbidden")
        assert answer["message"].startswith(f'{refused} is forbidden: User "alice" cannot impersonate resource')
    else:
        assert (code, answer["status"]["userInfo"]["username"]) == (201, headers["Impersonate-User"])


async def test_who_one_is_is_answered_for_the_other_user(bench) -> None:
    headers = {
        "Impersonate-User": "system:serviceaccount:team:robot",
        "Impersonate-Uid": "7",
        "Impersonate-Extra-Acme.com%2fscopes": "all",
    }

    _, answer = await bench.call("POST", REVIEWS, {}, headers=headers)

    assert answer["status"]["userInfo"] == {
        "username": "system:serviceaccount:team:robot",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated"],
        "uid": "7",
        "extra": {"acme.com/scopes": ["all"]},
    }


@pytest.mark.parametrize("header", ["Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-a"])
async def test_a_group_without_a_user_is_refused(bench, header) -> None:
    assert (await bench.call("GET", PODS, headers={header: "x"}))[0] == 400


@kubectl_needed
async def test_kubectl_as_another_user(bench) -> None:
    await bench.running_pod("p")

    assert "no" in (await bench.kubectl("auth", "can-i", "delete", "pods", "--as=stranger", code=1)).split()
    assert "stranger" in await bench.kubectl("auth", "whoami", "--as=stranger")
    assert 'User "stranger" cannot delete resource "pods"' in await bench.kubectl(
        "delete", "pod", "p", "--as=stranger", code=1
    )
    assert "Forbidden" in await bench.kubectl("exec", "p", "--as=stranger", "--", "true", code=1)
    assert "pod/p" in await bench.kubectl("get", "pod", "p", "-o", "name")
    assert "yes" in await bench.kubectl("auth", "can-i", "delete", "pods", "--as=stranger", "--as-group=system:masters")
