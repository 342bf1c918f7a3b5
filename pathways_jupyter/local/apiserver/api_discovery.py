"""Discovery documents: the groups, versions and resources that are served."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pathways_jupyter.local.apiserver.resources import Object, Registry, ResourceType

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
_SUBRESOURCES: dict[str, tuple[str, list[str], tuple[str, str, str]]] = {
    "attach": ("PodAttachOptions", ["create", "get"], ("", "v1", "PodAttachOptions")),
    "binding": ("Binding", ["create"], ("", "v1", "Binding")),
    "eviction": ("Eviction", ["create"], ("policy", "v1", "Eviction")),
    "exec": ("PodExecOptions", ["create", "get"], ("", "v1", "PodExecOptions")),
    "log": ("Pod", ["get"], ("", "v1", "Pod")),
    "token": ("TokenRequest", ["create"], ("authentication.k8s.io", "v1", "TokenRequest")),
    "portforward": ("PodPortForwardOptions", ["create", "get"], ("", "v1", "PodPortForwardOptions")),
}
REVIEWS = (
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews"),
    ("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews"),
    ("authentication.k8s.io", "v1", "TokenReview", "tokenreviews"),
)
"""Kinds that can be posted but are not stored: group, version, kind, plural."""


def discover(registry: Registry, path: str, accept: str) -> Object | None:
    """The document at `path`, or None when there is none.

    Args:
      accept: The ``Accept`` header; it decides whether the roots list everything at once.
    """
    aggregated = "as=APIGroupDiscoveryList" in accept
    parts = path.strip("/").split("/")
    if parts == ["version"]:
        return dict(VERSION)
    if parts == ["api"]:
        if aggregated:
            return _aggregated(registry, core=True)
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }
    if parts == ["apis"]:
        if aggregated:
            return _aggregated(registry, core=False)
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


def _served(registry: Registry, group: str, version: str) -> list[ResourceType]:
    return sorted(
        (each for each in registry if (each.group, each.version) == (group, version)), key=lambda each: each.plural
    )


def _resources(registry: Registry, group: str, version: str) -> Object:
    listed: list[Object] = []
    for each in _served(registry, group, version):
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
        for name, kind, verbs, (sub_group, sub_version, _) in _subresources(each):
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


def _subresources(resource: ResourceType) -> list[tuple[str, str, list[str], tuple[str, str, str]]]:
    found = [(name, *_SUBRESOURCES[name]) for name in resource.subresources]
    if resource.has_status:
        own = (resource.group, resource.version, resource.kind)
        found.append(("status", resource.kind, ["get", "patch", "update"], own))
    return found


def _aggregated(registry: Registry, *, core: bool) -> Object:
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None},
            "versions": [
                {
                    "version": version,
                    "freshness": "Current",
                    "resources": _aggregated_resources(registry, group, version),
                }
                for version in versions
            ],
        }
        for group, versions in _groups(registry).items()
        if (group == "") is core
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated_resources(registry: Registry, group: str, version: str) -> list[Object]:
    listed: list[Object] = []
    for each in _served(registry, group, version):
        entry: dict[str, Any] = {
            "resource": each.plural,
            "responseKind": {"group": group, "version": version, "kind": each.kind},
            "scope": "Namespaced" if each.namespaced else "Cluster",
            "singularResource": each.singular,
            "verbs": _VERBS,
        }
        if each.short_names:
            entry["shortNames"] = list(each.short_names)
        if each.categories:
            entry["categories"] = list(each.categories)
        inner = [
            {"subresource": name, "responseKind": {"group": g, "version": v, "kind": kind}, "verbs": verbs}
            for name, _, verbs, (g, v, kind) in _subresources(each)
        ]
        if inner:
            entry["subresources"] = inner
        listed.append(entry)
    listed += [
        {
            "resource": plural,
            "responseKind": {"group": group, "version": version, "kind": kind},
            "scope": "Cluster",
            "singularResource": kind.lower(),
            "verbs": ["create"],
        }
        for review_group, review_version, kind, plural in REVIEWS
        if (review_group, review_version) == (group, version)
    ]
    return listed
