"""Permissions by the rules of a token, and by roles in the store; how one asks for them over HTTP is in test_access."""

from __future__ import annotations

import pytest

from pathways_jupyter.local.apiserver.access import REVIEW_PATHS, Question, User, Users, answer_review, may
from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from pathways_jupyter.local.apiserver.store import Store

READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
GET_POD = Question("get", "", "pods", "default", "p")
ACCESS_REVIEW = REVIEW_PATHS["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"]
SELF_REVIEW = REVIEW_PATHS["/apis/authentication.k8s.io/v1/selfsubjectreviews"]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.mark.parametrize(
    ("rule", "question", "allowed"),
    [
        (READ, GET_POD, True),
        (READ, Question("delete", "", "pods", "default", "p"), False),
        (READ, Question("get", "batch", "pods", "default", "p"), False),
        # A resource does not include its subresources.
        (READ, Question("get", "", "pods/log", "default", "p"), False),
        ({**READ, "resources": ["pods/log"]}, Question("get", "", "pods/log", "default", "p"), True),
        ({**READ, "resources": ["*/log"]}, Question("get", "", "pods/log", "default", "p"), True),
        ({**READ, "resources": ["*/log"]}, GET_POD, False),
        ({**READ, "resources": ["*"]}, Question("get", "", "pods/log", "default", "p"), True),
        ({**READ, "resourceNames": ["p"]}, GET_POD, True),
        ({**READ, "resourceNames": ["q"]}, GET_POD, False),
        ({**READ, "resourceNames": ["p"]}, Question("list", "", "pods", "default"), False),
        ({**READ, "namespaces": ["default"]}, GET_POD, True),
        ({**READ, "namespaces": ["default"]}, Question("list", "", "pods"), False),
        ({"nonResourceURLs": ["/api*"], "verbs": ["get"]}, Question("get", path="/apis/batch"), True),
        ({"nonResourceURLs": ["/api*"], "verbs": ["get"]}, Question("get", path="/version"), False),
        ({"nonResourceURLs": ["/version"], "verbs": ["get"]}, Question("get", path="/version/more"), False),
        ({"nonResourceURLs": ["/*"], "verbs": ["get"]}, GET_POD, False),
    ],
)
def test_a_rule_of_a_token_grants_what_it_names_alone(store, rule, question, allowed):
    assert may(store, User("jane", [rule]), question) is allowed


@pytest.mark.parametrize(
    ("subject", "user", "allowed"),
    [
        ({"kind": "User", "name": "jane"}, User("jane", ()), True),
        ({"kind": "User", "name": "jane"}, User("john", ()), False),
        ({"kind": "Group", "name": "team"}, User("jane", (), ("team",)), True),
        ({"kind": "Group", "name": "jane"}, User("jane", ()), False),
        ({"kind": "ServiceAccount", "name": "a", "namespace": "x"}, User("system:serviceaccount:x:a", ()), True),
        ({"kind": "ServiceAccount", "name": "a", "namespace": "y"}, User("system:serviceaccount:x:a", ()), False),
    ],
)
def test_a_binding_grants_a_role_to_its_subjects_alone(store, subject, user, allowed):
    store.create(CLUSTER_ROLES, {"metadata": {"name": "r"}, "rules": [READ]})
    binding = {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [subject]}
    store.create(CLUSTER_ROLE_BINDINGS, binding)
    assert may(store, user, GET_POD) is allowed


def test_a_binding_in_a_namespace_grants_its_role_there_alone(store):
    paths = {"nonResourceURLs": ["*"], "verbs": ["get"]}
    store.create(CLUSTER_ROLES, {"metadata": {"name": "r"}, "rules": [READ, paths]})
    subjects = [{"kind": "User", "name": "jane"}]
    store.create(
        ROLE_BINDINGS,
        {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": subjects},
    )
    jane = User("jane", ())
    assert may(store, jane, GET_POD)
    assert not may(store, jane, Question("get", "", "pods", "kube-system", "p"))
    assert not may(store, jane, Question("get", path="/version"))
    # A role that is gone, or of another kind, grants nothing.
    store.delete(CLUSTER_ROLES, "", "r")
    store.create(ROLES, {"metadata": {"name": "r"}, "rules": [READ]})
    assert not may(store, jane, GET_POD)


def test_tokens_are_given_out_once_and_revoked_by_what_they_belong_to():
    users = Users()
    token = users.add("pod", [READ], ["pods"], {"uid": ["1"]})
    other = users.add("pod", [READ], ["pods"], {"uid": ["2"]})
    assert users.add("pod", [READ], ["pods"], {"uid": ["1"]}) == token != other
    found = users.authenticate(f"Bearer {token}")
    assert (found.name, found.groups, found.extra) == ("pod", ("pods", "system:authenticated"), {"uid": ["1"]})
    users.revoke("uid", "1")
    assert users.authenticate(f"Bearer {token}") is None
    assert users.authenticate(f"bearer  {other}").name == "pod"


def test_a_review_says_who_one_is_and_what_one_may(store):
    jane = User("jane", [READ], ("team",), {"uid": ["1"]})
    said = answer_review(SELF_REVIEW, jane, {}, store)["status"]["userInfo"]
    assert said == {"username": "jane", "groups": ["team"], "extra": {"uid": ["1"]}}
    about = {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "default"}
    assert not answer_review(ACCESS_REVIEW, jane, {"spec": {"resourceAttributes": about}}, store)["status"]["allowed"]
    del about["subresource"]
    assert answer_review(ACCESS_REVIEW, jane, {"spec": {"resourceAttributes": about}}, store)["status"]["allowed"]


@pytest.mark.parametrize(
    "review",
    [
        {"spec": {}},
        {"spec": {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/"}}},
        {"spec": []},
        {"metadata": "x"},
    ],
)
def test_a_review_that_asks_for_nothing_or_two_things_is_refused(store, review):
    with pytest.raises(StatusError) as refused:
        answer_review(ACCESS_REVIEW, User("jane", ()), review, store)
    assert refused.value.status == 400
