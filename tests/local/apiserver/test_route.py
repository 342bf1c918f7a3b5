"""Paths and queries of requests for objects."""

from __future__ import annotations

import pytest

from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.route import find_route, number, read_revision
from pathways_jupyter.local.apiserver.store import Store

REGISTRY = Store().resources
DEFAULT = "/api/v1/namespaces/default"


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", f"{DEFAULT}/pods", {}, ("list", "pods", "default", "", "default")),
        ("GET", f"{DEFAULT}/pods", {"watch": "true"}, ("watch", "pods", "default", "", "default")),
        ("GET", f"{DEFAULT}/pods", {"watch": "0"}, ("list", "pods", "default", "", "default")),
        ("GET", "/api/v1/pods", {}, ("list", "pods", "", "", "")),
        ("POST", f"{DEFAULT}/pods", {}, ("create", "pods", "default", "", "default")),
        ("DELETE", f"{DEFAULT}/pods", {}, ("deletecollection", "pods", "default", "", "default")),
        ("PUT", f"{DEFAULT}/pods/p/status", {}, ("update", "pods/status", "default", "p", "default")),
        ("POST", f"{DEFAULT}/pods/p/exec", {}, ("create", "pods/exec", "default", "p", "default")),
        ("GET", f"{DEFAULT}/pods/p/exec", {}, ("get", "pods/exec", "default", "p", "default")),
        ("PATCH", "/apis/batch/v1/namespaces/a/jobs/j", {}, ("patch", "jobs", "a", "j", "a")),
        # A request for a namespace is inside it for RBAC, and outside of all in the store.
        ("GET", "/api/v1/namespaces/a", {}, ("get", "namespaces", "a", "a", "")),
        ("PUT", "/api/v1/namespaces/a/status", {}, ("update", "namespaces/status", "a", "a", "")),
        ("GET", "/api/v1/nodes/n", {}, ("get", "nodes", "", "n", "")),
    ],
)
def test_a_path_names_verb_resource_namespace_and_object(method, path, query, expected):
    found = find_route(REGISTRY, method, path, query)
    assert (found.verb, found.target, found.namespace, found.name, found.home) == expected


@pytest.mark.parametrize("path", ["/", "/version", "/healthz", "/api", "/api/v1", "/apis/batch/v1", "/openapi/v3"])
def test_a_path_that_is_not_one_of_objects_has_no_route(path):
    assert find_route(REGISTRY, "GET", path, {}) is None


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nothings", 404),
        ("GET", "/apis/batch/v2/jobs", 404),
        ("GET", f"{DEFAULT}/pods/../secrets", 404),
        ("GET", f"{DEFAULT}/pods/p/nothing", 404),
        ("GET", f"{DEFAULT}/configmaps/c/status", 404),
        ("GET", f"{DEFAULT}/nodes/n", 404),
        ("GET", "/api/v1/pods/p", 404),
        ("GET", f"{DEFAULT}/pods/p/log/more", 404),
        ("POST", "/api/v1/pods", 405),
        ("POST", f"{DEFAULT}/configmaps/c", 405),
        ("POST", f"{DEFAULT}/pods/p/log", 405),
        ("PUT", f"{DEFAULT}/pods", 405),
        ("HEAD", f"{DEFAULT}/pods/p", 405),
        ("DELETE", "/api/v1/namespaces", 405),
    ],
)
def test_what_is_not_there_and_what_cannot_be_done_with_it_differ(method, path, status):
    with pytest.raises(StatusError) as refused:
        find_route(REGISTRY, method, path, {})
    assert refused.value.status == status


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "1" * 19, "\u0661", " 1"])
def test_numbers_and_revisions_are_checked(text):
    for read in (lambda: number({"limit": text}, "limit"), lambda: read_revision(text)):
        with pytest.raises(StatusError) as refused:
            read()
        assert refused.value.status == 400


def test_a_number_or_revision_may_be_left_out():
    assert (number({}, "limit"), number({"limit": "0"}, "limit"), number({"limit": "12"}, "limit")) == (None, 0, 12)
    assert (read_revision(""), read_revision("0"), read_revision("12")) == (None, None, 12)
