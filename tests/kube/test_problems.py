import re
from urllib.parse import unquote, urlsplit

import kinds
import pytest

from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.problems import act, refused, unreachable


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("POST", "/apis/batch/v1/namespaces/default/jobs", None, "create jobs in namespace default"),
        ("GET", "/apis/batch/v1/namespaces/default/jobs", None, "list jobs in namespace default"),
        ("GET", "/apis/batch/v1/jobs", {"watch": "1"}, "watch jobs"),
        ("GET", "/api/v1/namespaces/default/pods/p", None, "get pods p in namespace default"),
        ("GET", "/api/v1/namespaces/default/pods/p/log", None, "get pods/log p in namespace default"),
        ("POST", "/api/v1/namespaces/default/pods/p/exec?command=ls", None, "create pods/exec p in namespace default"),
        ("UPGRADE", "/api/v1/namespaces/a/pods/p/exec", None, "get and create pods/exec p in namespace a"),
        ("GET", "/api/v1/namespaces/a/pods/p%3Fx", None, "get pods p?x in namespace a"),
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
    assert "administrator for list on nodes" in error.hint
    assert "kubectl create clusterrolebinding NAME --clusterrole=ROLE" in error.hint


@pytest.mark.parametrize(("status", "again"), [(400, False), (405, False), (413, False), (500, True), (503, True)])
def test_only_a_server_that_failed_is_asked_again_without_a_change(status, again):
    error = refused(status, {"message": "no"}, method="POST", path="/api/v1/nodes", query=None, hint="")
    assert (error.hint == "Try again in a moment.") is again
    assert ("Correct what the message names" in error.hint) is not again


@pytest.mark.parametrize("verb", ["get", "create"])
def test_a_refused_tunnel_names_the_verb_that_the_server_named_and_asks_for_both(verb):
    denied = f'User "a" cannot {verb} resource "pods/portforward" in API group "" in the namespace "default"'
    answer = {"message": f'pods "p" is forbidden: {denied}'}
    path = "/api/v1/namespaces/default/pods/p/portforward"
    error = refused(403, answer, method="UPGRADE", path=path, query=None, hint="")
    assert str(error).startswith(f"You are not allowed to {verb} pods/portforward p in namespace default:")
    assert "administrator for get and create on pods/portforward: pathways-jupyter manifests roles" in error.hint
    assert "kubectl create rolebinding NAME --role=ROLE --user=USER -n default" in error.hint


@pytest.mark.parametrize(
    "error",
    [
        OSError(),
        ConnectionResetError(),
        BrokenPipeError(),
        EOFError(),
        TimeoutError(),
        OSError(24, "Too many"),
        Exception(),
    ],
)
def test_an_error_without_a_text_is_given_a_reason_nevertheless(error):
    assert re.fullmatch(r"The API server https://a cannot be reached: \w[^.]+\.", str(unreachable(error, "https://a")))


def test_a_refusal_by_policy_does_not_talk_of_roles():
    answer = {"message": 'admission webhook "gatekeeper" denied the request'}
    error = refused(403, answer, method="POST", path="/api/v1/namespaces/a/pods", query=None, hint="")
    assert "policy" in error.hint


@pytest.mark.parametrize("name", ["p?x=1", "p#x", "a b", "p&watch=1", "räk", "p\r\nX: 1", "p;q", "a+b"])
def test_a_name_of_any_characters_stays_one_segment_of_the_path(name):
    path = objects.PODS.path("default", name, "log")
    parsed = urlsplit(f"https://server{path}")
    assert (parsed.query, parsed.fragment) == ("", "")
    assert [unquote(part) for part in parsed.path.split("/")] == f"/api/v1/namespaces/default/pods/{name}/log".split(
        "/"
    )
    assert path.isascii()
    assert not set(path) & set(" \r\n")


@pytest.mark.parametrize("name", [".", "..", "a/b", "/", "../../x", "a%2fb", "%2e%2e", "%"])
def test_a_name_that_would_change_the_path_however_it_is_quoted_is_refused(name):
    for arguments in (("default", name), (name, "p"), (name,)):
        with pytest.raises(ConfigError, match="cannot be the name of a ") as raised:
            objects.PODS.path(*arguments)
        assert repr(name) in str(raised.value)


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
        (kinds.NODES, ("ns", "n"), "/api/v1/nodes/n"),
        (objects.JOBSETS, ("ns", "j"), "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/j"),
        (kinds.CRDS, ("", "c"), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/c"),
    ],
)
def test_every_kind_knows_its_path(resource, arguments, expected):
    assert resource.path(*arguments) == expected
