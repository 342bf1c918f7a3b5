"""Discovery documents: the groups, versions and resources that are served."""

from __future__ import annotations

from collections.abc import Sequence

from pathways_jupyter.local.apiserver.resources import Object, Registry

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

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCES: dict[str, tuple[str, list[str], tuple[str, str]]] = {
    "attach": ("PodAttachOptions", ["create", "get"], ("", "v1")),
    "eviction": ("Eviction", ["create"], ("policy", "v1")),
    "exec": ("PodExecOptions", ["create", "get"], ("", "v1")),
    "log": ("Pod", ["get"], ("", "v1")),
    "token": ("TokenRequest", ["create"], ("authentication.k8s.io", "v1")),
    "portforward": ("PodPortForwardOptions", ["create", "get"], ("", "v1")),
}
REVIEWS = (
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews"),
    ("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews"),
    ("authentication.k8s.io", "v1", "TokenReview", "tokenreviews"),
)
"""Kinds that can be posted but are not stored: group, version, kind, plural."""


def discover(registry: Registry, path: str) -> Object | None:
    """The document at `path`, or None when there is none."""
    parts = path.strip("/").split("/")
    if parts == ["version"]:
        return dict(VERSION)
    if parts == ["api"]:
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }
    if parts == ["apis"]:
        return {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(group, versions) for group, versions in _groups(registry).items() if group],
        }
    if parts == ["api", "v1"]:
        return _resources(registry, "", "v1")
    if parts[0] == "apis" and len(parts) in (2, 3):
        versions = _groups(registry).get(parts[1], [])
        if len(parts) == 3:
            return _resources(registry, parts[1], parts[2]) if parts[2] in versions else None
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], versions)} if versions else None
    if parts == [""]:
        roots = ["/api", "/api/v1", "/apis", "/openapi/v2", "/openapi/v3", "/healthz", "/livez", "/readyz", "/version"]
        return {"paths": sorted([*roots, *(f"/apis/{group}" for group in _groups(registry) if group)])}
    return None


def _groups(registry: Registry) -> dict[str, list[str]]:
    """Versions by group, the preferred one first."""
    groups: dict[str, list[str]] = {}
    for group, version in [*((each.group, each.version) for each in registry), *(each[:2] for each in REVIEWS)]:
        versions = groups.setdefault(group, [])
        if version not in versions:
            versions.append(version)
    return groups


def _group(group: str, versions: Sequence[str]) -> Object:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _resources(registry: Registry, group: str, version: str) -> Object:
    listed: list[Object] = []
    served = [each for each in registry if (each.group, each.version) == (group, version)]
    for each in sorted(served, key=lambda each: each.plural):
        entry: Object = {
            "name": each.plural,
            "singularName": each.singular,
            "namespaced": each.namespaced,
            "kind": each.kind,
            "verbs": _VERBS,
        }
        if each.short_names:
            entry["shortNames"] = list(each.short_names)
        if each.categories:
            entry["categories"] = list(each.categories)
        listed.append(entry)
        inner_types = [(name, *_SUBRESOURCES[name]) for name in each.subresources]
        if each.has_status:
            inner_types.append(("status", each.kind, ["get", "patch", "update"], (group, version)))
        for name, kind, verbs, (sub_group, sub_version) in inner_types:
            inner: Object = {
                "name": f"{each.plural}/{name}",
                "singularName": "",
                "namespaced": each.namespaced,
                "kind": kind,
                "verbs": verbs,
            }
            if (sub_group, sub_version) != (group, version):
                inner |= {"group": sub_group, "version": sub_version}
            listed.append(inner)
    listed += [
        {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
        for review_group, review_version, kind, plural in REVIEWS
        if (review_group, review_version) == (group, version)
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": listed,
    }
