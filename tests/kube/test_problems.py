import pytest

from pathways_jupyter.kube import objects
from pathways_jupyter.kube.problems import act, refused


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("POST", "/apis/batch/v1/namespaces/default/jobs", None, "create jobs in namespace default"),
        ("GET", "/apis/batch/v1/namespaces/default/jobs", None, "list jobs in namespace default"),
        ("GET", "/apis/batch/v1/jobs", {"watch": "1"}, "watch jobs"),
        ("GET", "/api/v1/namespaces/default/pods/p", None, "get pods p in namespace default"),
        ("GET", "/api/v1/namespaces/default/pods/p/log", None, "get pods/log p in namespace default"),
        ("POST", "/api/v1/namespaces/default/pods/p/exec?command=ls", None, "create pods/exec p in namespace default"),
        ("PUT", "/api/v1/namespaces/default/pods/p/status", None, "update pods/status p in namespace default"),
        ("PATCH", "/api/v1/nodes/n", None, "patch nodes n"),
        ("DELETE", "/api/v1/namespaces/default/pods", None, "deletecollection pods in namespace default"),
        ("DELETE", "/api/v1/namespaces/x", None, "delete namespaces x"),
        ("GET", "/version", None, "get /version"),
    ],
)
def test_a_request_is_named_as_rbac_names_it(method, path, query, expected):
    assert str(act(method, path, query)) == expected


def test_a_refusal_for_the_whole_cluster_asks_for_a_cluster_role():
    error = refused(403, {"message": "no"}, method="GET", path="/api/v1/nodes", query=None, hint="")
    assert "ClusterRole with verb list on nodes" in error.hint
    assert "kubectl create clusterrole" in error.hint


def test_a_refusal_by_policy_does_not_talk_of_roles():
    answer = {"message": 'admission webhook "gatekeeper" denied the request'}
    error = refused(403, answer, method="POST", path="/api/v1/namespaces/a/pods", query=None, hint="")
    assert "policy" in error.hint


@pytest.mark.parametrize("status", [404, 409, 422, 429, 500])
def test_every_refusal_says_what_to_do(status):
    error = refused(status, {}, method="GET", path="/api/v1/pods", query=None, hint="")
    assert (error.status, str(error), bool(error.hint)) == (status, f"HTTP {status}", True)


@pytest.mark.parametrize(
    ("resource", "arguments", "expected"),
    [
        (objects.PODS, (), "/api/v1/pods"),
        (objects.PODS, ("ns",), "/api/v1/namespaces/ns/pods"),
        (objects.PODS, ("ns", "p", "log"), "/api/v1/namespaces/ns/pods/p/log"),
        (objects.NODES, ("ns", "n"), "/api/v1/nodes/n"),
        (objects.JOBSETS, ("ns", "j"), "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/j"),
        (objects.CRDS, ("", "c"), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/c"),
    ],
)
def test_every_kind_knows_its_path(resource, arguments, expected):
    assert resource.path(*arguments) == expected
