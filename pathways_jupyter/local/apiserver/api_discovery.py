"""Documents about the API itself: groups, versions and resources, and the part of OpenAPI that kubectl needs.

OpenAPI version 3 lists paths, by which kubectl knows that the server validates fields; its schemas have no fields.
Version 2 names no kind. kubectl reads it, only as protobuf, when it meets a kind that version 3 does not have: without
a document its message would be about the document instead of the kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pathways_jupyter.local.apiserver.resources import VISIBLE_QUEUES, Object, Registry, encode

VERSION = {
    "major": "1",
    "minor": "35",
    "gitVersion": "v1.35.0+pathways.local",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
OPENAPI_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The content type of answers. The one that clients request has an ``@`` in it, which Go's own parser refuses."""
REVIEWS = (
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    ("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews"),
)
"""Kinds that can be posted but are not stored: group, version, kind, plural."""

_INFO = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
_NO_FIELDS = "The embedded cluster does not describe fields; see https://kubernetes.io/docs/reference/kubernetes-api/."
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
SUBRESOURCES: dict[str, tuple[str, list[str], Object]] = {
    "eviction": ("Eviction", ["create"], {"group": "policy", "version": "v1"}),
    "exec": ("PodExecOptions", ["create", "get"], {}),
    "log": ("Pod", ["get"], {}),
    "pendingworkloads": ("PendingWorkloadsSummary", ["get"], {}),
    "portforward": ("PodPortForwardOptions", ["create", "get"], {}),
}
"""By name: the kind, the verbs, and the group of a kind of another one."""


def discover(registry: Registry, path: str) -> Object | None:
    """Return the document at `path`, or None when there is none."""
    parts = path.strip("/").split("/")
    # Versions by group, the preferred one first.
    groups: dict[str, list[str]] = {}
    for group, version in [*((each.group, each.version) for each in registry), *(each[:2] for each in REVIEWS)]:
        if version not in groups.setdefault(group, []):
            groups[group].append(version)
    match parts:
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            listed = [_group(group, versions) for group, versions in groups.items() if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        case ["api", "v1"]:
            return _resources(registry, "", "v1")
        case ["apis", group] if group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
        case ["apis", group, version] if version in groups.get(group, ()):
            return _resources(registry, group, version)
        case ["openapi", "v3", *rest]:
            return _openapi(registry, "/".join(rest))
    return None


def openapi_v2_as_protobuf() -> bytes:
    """Return the empty document of OpenAPI version 2, as a ``Document`` message of gnostic's ``openapi.v2``."""

    def text(number: int, value: bytes) -> bytes:
        return bytes((number << 3 | 2, len(value))) + value

    info = text(1, _INFO["title"].encode()) + text(2, _INFO["version"].encode())
    return text(1, b"2.0") + text(2, info) + text(8, b"") + text(9, b"")


def _group(group: str, versions: Sequence[str]) -> Object:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _resources(registry: Registry, group: str, version: str) -> Object:
    listed: list[Object] = []
    served = [each for each in registry if (each.group, each.version) == (group, version)]
    for each in sorted(served, key=lambda each: each.plural):
        common = {"namespaced": each.namespaced, "kind": each.kind}
        if each != VISIBLE_QUEUES:
            listed.append(
                {
                    "name": each.plural,
                    "singularName": each.singular,
                    **common,
                    "verbs": _VERBS,
                    **({"shortNames": list(each.short_names)} if each.short_names else {}),
                    **({"categories": list(each.categories)} if each.categories else {}),
                }
            )
        for name in each.subresources:
            kind, verbs, home = SUBRESOURCES[name]
            inner = {"name": f"{each.plural}/{name}", "singularName": "", **common, "kind": kind, "verbs": verbs}
            listed.append({**inner, **home})
        if each.has_status:
            verbs = ["get", "patch", "update"]
            listed.append({"name": f"{each.plural}/status", "singularName": "", **common, "verbs": verbs})
    listed += [
        {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
        for review_group, review_version, kind, plural in REVIEWS
        if (review_group, review_version) == (group, version)
    ]
    path = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": path, "resources": listed}


def _openapi(registry: Registry, path: str) -> Object | None:
    """Return the document of OpenAPI version 3 at `path`, or the list of all when that is empty."""
    documents: dict[str, Object] = {}
    for each in registry:
        if each == VISIBLE_QUEUES:
            continue
        home = f"apis/{each.api_version}" if each.group else f"api/{each.version}"
        root = f"/{home}/namespaces/{{namespace}}/{each.plural}" if each.namespaced else f"/{home}/{each.plural}"
        kind = {"group": each.group, "version": each.version, "kind": each.kind}
        operation = {
            "x-kubernetes-group-version-kind": kind,
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": "string"}}
                for name in ("fieldValidation", "dryRun", "fieldManager")
            ],
            "responses": {"200": {"description": "OK"}},
        }
        empty: Object = {"openapi": "3.0.0", "info": _INFO, "paths": {}, "components": {"schemas": {}}}
        document = documents.setdefault(home, empty)
        document["paths"][root] = {"post": {"x-kubernetes-action": "post", **operation}}
        document["paths"][f"{root}/{{name}}"] = {
            verb: {"x-kubernetes-action": verb, **operation} for verb in ("get", "put", "patch", "delete")
        }
        schema = {"type": "object", "description": _NO_FIELDS, "x-kubernetes-group-version-kind": [kind]}
        document["components"]["schemas"][each.kind] = schema
    if path:
        return documents.get(path)
    addresses = {}
    for home, document in documents.items():
        # By the hash, clients can cache a document until it changes.
        mark = hashlib.sha256(encode(document)).hexdigest()[:32].upper()
        addresses[home] = {"serverRelativeURL": f"/openapi/v3/{home}?hash={mark}"}
    return {"paths": addresses}
