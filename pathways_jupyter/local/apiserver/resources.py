"""Registry of resource types; custom resource definitions add to it while the cluster runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as plain JSON."""


def encode(obj: Any) -> bytes:
    """Encode an object as compact JSON; half a surrogate pair, which JSON can escape and UTF-8 cannot, is replaced."""
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    path: str | Callable[[Object], Any]
    """A JSONPath, as a custom resource definition has it, or a function of the object."""
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True)
class ResourceType:
    """One resource type: its place in the API, and what it supports."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    subresources: tuple[str, ...] = ()
    """Subresources other than ``status``."""
    default_propagation: str = "Background"
    """Propagation policy of a delete that names none."""
    generations: bool = False
    """``metadata.generation`` counts changes of the spec; it does so for every custom resource."""
    custom: bool = False
    """Defined by a custom resource definition."""
    schema: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False, repr=False)
    """The OpenAPI schema of a custom resource."""
    columns: tuple[Column, ...] = field(default=(), compare=False, repr=False)
    stored_version: str = field(default="", compare=False, repr=False)
    """The version in which objects are stored, where that is another one."""

    def of(self, obj: Object) -> Object:
        """Return an object in this version; its fields are the same in all."""
        return obj if obj["apiVersion"] == self.api_version else {**obj, "apiVersion": self.api_version}

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of objects of this type."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> tuple[str, str]:
        """The storage key, which all versions of a type share."""
        return (self.group, self.plural)

    @property
    def qualified(self) -> str:
        """``jobs.batch``; ``pods`` in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def singular(self) -> str:
        """``job``."""
        return self.kind.lower()


NAMESPACES = ResourceType("", "v1", "Namespace", "namespaces", False, ("ns",), has_status=True)
NODES = ResourceType("", "v1", "Node", "nodes", False, ("no",), has_status=True)
PODS = ResourceType(
    "",
    "v1",
    "Pod",
    "pods",
    short_names=("po",),
    categories=("all",),
    has_status=True,
    generations=True,
    subresources=("eviction", "exec", "log", "portforward"),
)
SERVICES = ResourceType("", "v1", "Service", "services", short_names=("svc",), categories=("all",), has_status=True)
EVENTS = ResourceType("", "v1", "Event", "events", short_names=("ev",))
CONFIG_MAPS = ResourceType("", "v1", "ConfigMap", "configmaps", short_names=("cm",))
SECRETS = ResourceType("", "v1", "Secret", "secrets")
PERSISTENT_VOLUME_CLAIMS = ResourceType(
    "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", short_names=("pvc",), has_status=True
)
SERVICE_ACCOUNTS = ResourceType("", "v1", "ServiceAccount", "serviceaccounts", short_names=("sa",))
JOBS = ResourceType(
    "batch",
    "v1",
    "Job",
    "jobs",
    categories=("all",),
    has_status=True,
    default_propagation="Orphan",
    generations=True,
)
LEASES = ResourceType("coordination.k8s.io", "v1", "Lease", "leases")
NETWORK_POLICIES = ResourceType(
    "networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", short_names=("netpol",), generations=True
)
"""Stored but not enforced: pods here have no network of their own."""
ROLES = ResourceType("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDINGS = ResourceType("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLES = ResourceType("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False)
CLUSTER_ROLE_BINDINGS = ResourceType(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", False
)
VISIBLE_QUEUES = ResourceType(
    "visibility.kueue.x-k8s.io", "v1beta1", "LocalQueue", "localqueues", subresources=("pendingworkloads",)
)
"""Kueue's visibility API, of which only the subresource is served."""
CRDS = ResourceType(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    False,
    ("crd", "crds"),
    has_status=True,
    generations=True,
)

BUILTIN: tuple[ResourceType, ...] = (
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    EVENTS,
    CONFIG_MAPS,
    SECRETS,
    PERSISTENT_VOLUME_CLAIMS,
    SERVICE_ACCOUNTS,
    JOBS,
    LEASES,
    NETWORK_POLICIES,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    CRDS,
    VISIBLE_QUEUES,
)


class Registry:
    """The types that are currently served."""

    def __init__(self) -> None:
        self._types = {(each.group, each.version, each.plural): each for each in BUILTIN}

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._types.values())

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """Return the type served under this group, version and plural, or None."""
        return self._types.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> ResourceType | None:
        """Return the type of an object with this ``apiVersion`` and ``kind``, or None."""
        return next((each for each in self if (each.api_version, each.kind) == (api_version, kind)), None)

    def stored(self, key: tuple[str, str]) -> ResourceType | None:
        """Return the type whose objects are stored under `key`, or None."""
        return next((each for each in self._types.values() if each.key == key), None)

    def define(self, definition: Object) -> None:
        """Serve what a ``CustomResourceDefinition`` describes, instead of what it described before.

        Other versions than that in which objects are stored are served if they need no conversion by a webhook.
        """
        self.forget(definition)
        spec = definition["spec"]
        # The stored one first: it is preferred.
        versions = sorted(spec["versions"], key=lambda each: not each.get("storage"))
        if (spec.get("conversion") or {}).get("strategy", "None") != "None":
            versions = versions[:1]
        for version in versions:
            if version.get("served"):
                self._serve(spec, version, stored=versions[0]["name"])

    def _serve(self, spec: Object, version: Object, *, stored: str) -> None:
        names = spec["names"]
        self._types[spec["group"], version["name"], names["plural"]] = ResourceType(
            group=spec["group"],
            version=version["name"],
            kind=names["kind"],
            plural=names["plural"],
            namespaced=spec.get("scope", "Namespaced") == "Namespaced",
            short_names=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            has_status="status" in version.get("subresources", {}),
            generations=True,
            custom=True,
            stored_version=stored if stored != version["name"] else "",
            schema=version.get("schema", {}).get("openAPIV3Schema", {}),
            columns=tuple(
                Column(each["name"], each["jsonPath"], each.get("type", "string"), each.get("priority", 0))
                for each in version.get("additionalPrinterColumns", ())
            ),
        )

    def forget(self, definition: Object) -> None:
        """Stop serving what a ``CustomResourceDefinition`` describes."""
        key = (definition["spec"]["group"], definition["spec"]["names"]["plural"])
        for stored in [stored for stored, each in self._types.items() if each.custom and each.key == key]:
            del self._types[stored]


JOBSETS = ResourceType(
    "jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", has_status=True, custom=True, generations=True
)
"""JobSets for the store's callers; what is served follows the custom resource definition."""
