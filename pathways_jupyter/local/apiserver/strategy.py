"""Defaults and immutable fields of each kind, applied when objects are created or updated."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping

from pathways_jupyter.base.text import stamp
from pathways_jupyter.local.apiserver import resources as kinds
from pathways_jupyter.local.apiserver.api_errors import invalid
from pathways_jupyter.local.apiserver.custom import fill_defaults
from pathways_jupyter.local.apiserver.custom_rules import rule_causes
from pathways_jupyter.local.apiserver.resources import Object, ResourceType
from pathways_jupyter.local.apiserver.workload_strategy import (
    check_job_update,
    check_pod_update,
    prepare_job,
    prepare_pod,
)

_BESIDE_SCHEMA = ("apiVersion", "kind", "metadata", "status")


def now() -> str:
    """Return the current time as objects carry it."""
    return stamp(time.time())


def prepare(resource: ResourceType, obj: Object, old: Object | None) -> None:
    """Default and validate a new object (`old` is None; it has its uid already) or an updated one, in place.

    Raises:
      StatusError: 422, the object breaks a rule of its kind, or changes what must not change.
    """
    if old is None and resource.has_status:
        obj.pop("status", None)
    if resource.schema:
        state = {key: value for key, value in obj.items() if key not in _BESIDE_SCHEMA}
        obj.update(fill_defaults(resource.schema, state))
        if causes := list(rule_causes(resource.schema, obj, old)):
            raise invalid(resource, obj["metadata"]["name"], causes)
    elif old is not None:
        if (check := _UPDATE.get(resource.qualified)) is not None:
            check(obj, old)
    else:
        if (complete := _CREATE.get(resource.qualified)) is not None:
            complete(obj)
        if resource.has_status:
            obj.setdefault("status", {})


def _namespace(namespace: Object) -> None:
    namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = namespace["metadata"]["name"]
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _service(service: Object) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    # An address in the usual range of Services, the same for the same Service. It receives no traffic: pods of the
    # embedded cluster resolve each other's names to pod addresses.
    number = int(service["metadata"]["uid"].replace("-", "")[:4], 16)
    spec.setdefault("clusterIP", f"10.96.{number >> 8}.{max(number & 0xFF, 1)}")
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    service["status"] = {"loadBalancer": {}}


def _secret(secret: Object) -> None:
    secret.setdefault("type", "Opaque")
    # For manifests, and for the Python client.
    plain = secret.pop("stringData", None) or {}
    for key, value in plain.items():
        secret.setdefault("data", {})[key] = base64.b64encode(str(value).encode()).decode()


def _claim(claim: Object) -> None:
    """Bind a claim of ``lab`` at once: its volume is a directory, which is made when a pod mounts it."""
    spec = claim.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    needed = {"accessModes": spec.get("accessModes"), "resources[storage]": storage}
    if causes := [(f"spec.{field}", "Required value") for field, value in needed.items() if not value]:
        raise invalid(kinds.PERSISTENT_VOLUME_CLAIMS, claim["metadata"]["name"], causes)
    spec.setdefault("volumeName", f"pvc-{claim['metadata']['uid']}")
    claim["status"] = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": {"storage": storage}}


def _definition(definition: Object) -> None:
    spec = _checked_definition(definition)
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("scope", "Namespaced")
    spec.setdefault("conversion", {"strategy": "None"})
    common = {"status": "True", "lastTransitionTime": now()}
    reasons = {
        "NamesAccepted": ("NoConflicts", "no conflicts found"),
        "Established": ("InitialNamesAccepted", "the initial names have been accepted"),
    }
    definition["status"] = {
        "acceptedNames": dict(names),
        "storedVersions": [each["name"] for each in spec["versions"] if each.get("storage")],
        "conditions": [
            {"type": kind, "reason": reason, "message": message, **common}
            for kind, (reason, message) in reasons.items()
        ],
    }


def _checked_definition(definition: Object) -> Object:
    """Return the spec of a custom resource definition that can be served, as ``kubectl`` and the operator apply it."""
    name = definition["metadata"]["name"]
    spec: Object = definition.setdefault("spec", {})
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    needed = {
        "group": spec.get("group"),
        "names.plural": names.get("plural"),
        "names.kind": names.get("kind"),
        "versions": versions,
    }
    causes = [(f"spec.{field}", "Required value") for field, value in needed.items() if not value]
    if not causes and name != f"{names['plural']}.{spec['group']}":
        causes.append(("metadata.name", f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'))
    if not causes and sum(bool(each.get("storage")) for each in versions) != 1:
        causes.append(("spec.versions", "Invalid value: must have exactly one version marked as storage version"))
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}].schema.openAPIV3Schema"
        if not isinstance((version.get("schema") or {}).get("openAPIV3Schema"), dict):
            causes.append((path, "Required value: schemas are required"))
    if causes:
        raise invalid(kinds.CRDS, name, causes)
    return spec


_CREATE: Mapping[str, Callable[[Object], object]] = {
    "pods": prepare_pod,
    "jobs.batch": prepare_job,
    "namespaces": _namespace,
    # The scheduler and kubectl's table expect one.
    "nodes": lambda node: node.setdefault("spec", {}),
    "services": _service,
    "secrets": _secret,
    "persistentvolumeclaims": _claim,
    "customresourcedefinitions.apiextensions.k8s.io": _definition,
}
_UPDATE: Mapping[str, Callable[[Object, Object], object]] = {
    "pods": check_pod_update,
    "jobs.batch": check_job_update,
    "nodes": lambda node, old: node.setdefault("spec", {}),
    "customresourcedefinitions.apiextensions.k8s.io": lambda definition, old: _checked_definition(definition),
}
