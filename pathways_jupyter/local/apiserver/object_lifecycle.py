"""From an object's name to its end: names and labels, and what an update or a deletion may change of its state."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from pathways_jupyter.local.apiserver import strategy
from pathways_jupyter.local.apiserver.api_errors import StatusError, invalid, not_found
from pathways_jupyter.local.apiserver.resources import NAMESPACES, PODS, SERVICES, Object, ResourceType
from pathways_jupyter.local.apiserver.selectors import LABEL_KEY, LABEL_VALUE
from pathways_jupyter.local.apiserver.workload_strategy import DNS_LABEL

LONGEST_STEM = 58
"""Characters of ``generateName`` that a name begins with; five more follow."""
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PATH_SEGMENT = re.compile(r"(?!\.\.?$)[^/%]+")


def place(
    resource: ResourceType,
    metadata: Object,
    namespace: str,
    find: Callable[[ResourceType, str, str], Object | None],
) -> None:
    """Give a new object its name and namespace, in place.

    Args:
      namespace: Where it goes if it does not say.
      find: Returns an object, see :meth:`~pathways_jupyter.local.apiserver.store.Store.find`.

    Raises:
      StatusError: 403 (the namespace is ending), 404 (there is no such namespace), 422.
    """
    name = metadata.get("name")
    if not name and metadata.get("generateName"):
        name = f"{metadata['generateName']}"[:LONGEST_STEM] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
    if not name:
        raise invalid(resource, "", [("metadata.name", "Required value: name or generateName is required")])
    pattern, limit = _SUBDOMAIN, 253
    if resource.key in (NAMESPACES.key, SERVICES.key):
        pattern, limit = DNS_LABEL, 63
    elif resource.group == "rbac.authorization.k8s.io":
        pattern = _PATH_SEGMENT
    if not isinstance(name, str) or len(name) > limit or not pattern.fullmatch(name):
        why = (
            f'Invalid value: "{name}": a lowercase RFC 1123 name consists of lower case alphanumeric characters,'
            f" '-' or '.', must start and end with an alphanumeric character, and has at most {limit} characters"
        )
        raise invalid(resource, str(name), [("metadata.name", why)])
    metadata["name"] = name
    _check_labels(resource, metadata)
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return
    metadata["namespace"] = where = metadata.get("namespace") or namespace or "default"
    home = find(NAMESPACES, "", where)
    if home is None:
        raise not_found(NAMESPACES, where)
    if home["metadata"].get("deletionTimestamp"):
        raise StatusError(
            403,
            f'{resource.qualified} "{name}" is forbidden: unable to create new content in namespace {where}'
            " because it is being terminated",
            resource,
            name,
        )


def _check_labels(resource: ResourceType, metadata: Mapping[str, Any]) -> None:
    """Validate labels and annotations.

    Raises:
      StatusError: 422, one has a key or a value that it may not have.
    """
    causes = []
    for field in ("labels", "annotations"):
        for key, value in (metadata.get(field) or {}).items():
            if not LABEL_KEY.fullmatch(key):
                causes.append((f"metadata.{field}", f'Invalid value: "{key}": not a qualified name'))
            elif not isinstance(value, str) or (field == "labels" and not LABEL_VALUE.fullmatch(value)):
                causes.append((f"metadata.{field}", f'Invalid value: "{value}": not a valid value for {key}'))
    if causes:
        raise invalid(resource, str(metadata.get("name", "")), causes)


SYSTEM_FIELDS = (
    *("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("selfLink", "managedFields"),
)
"""Metadata that only the server writes."""
LASTING_NAMESPACES = ("default", "kube-system", "kube-public")
"""Namespaces of every cluster, which depends on them, so that ``kubectl delete`` cannot delete them."""
_PROPAGATION_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def revised(resource: ResourceType, new: Object, old: Object, subresource: str) -> Object:
    """Return the next state of `old` when a caller sends `new`.

    Without a subresource it is `new`, altered. With one it shares the rest with `old`.

    Raises:
      StatusError: 422, it changes what must not change.
    """
    if subresource == "status":
        return {**old, "metadata": {**old["metadata"]}, **({"status": new["status"]} if "status" in new else {})}
    if subresource == "binding":
        # The only way to set the node: an update of the spec cannot, and a binding does not count as one.
        spec = {**old["spec"], "nodeName": new["spec"]["nodeName"]}
        return {**old, "metadata": {**old["metadata"]}, "spec": spec}
    new["apiVersion"], new["kind"] = old["apiVersion"], old["kind"]
    metadata, current = new["metadata"], old["metadata"]
    for field in SYSTEM_FIELDS:
        metadata.pop(field, None)
        if field in current:
            metadata[field] = current[field]
    if resource.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    _check_labels(resource, metadata)
    strategy.prepare(resource, new, old)
    beside = ("metadata", "status") if resource.has_status else ("metadata",)
    if resource.generations and {k: v for k, v in new.items() if k not in beside} != {
        k: v for k, v in old.items() if k not in beside
    }:
        metadata["generation"] = current.get("generation", 1) + 1
    return new


def mark_deleted(resource: ResourceType, obj: Object, grace: int | None, propagation: str, *, dependents: bool) -> None:
    """Mark an object for deletion, in place: its deadline, and the finalizer that handles its dependents.

    Args:
      grace: Seconds that its processes get; None for what the object says. A later call can only shorten it.
      propagation: ``Background``, ``Foreground`` or ``Orphan``; empty for the type's own default.
      dependents: Whether it has any.

    Raises:
      StatusError: 403, it is a namespace that every cluster has.
    """
    metadata = obj["metadata"]
    if resource.key == NAMESPACES.key and metadata["name"] in LASTING_NAMESPACES:
        name = metadata["name"]
        raise StatusError(403, f'namespaces "{name}" is forbidden: this namespace may not be deleted', resource, name)
    seconds = 0
    if resource.key == PODS.key:
        idle = not obj["spec"].get("nodeName") or pod_is_over(obj)
        wish = obj["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
        seconds = 0 if idle else max(0, wish)
    before = metadata.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = strategy.now()
        metadata["deletionGracePeriodSeconds"] = seconds
        finalizer = _PROPAGATION_FINALIZERS.get(propagation or resource.default_propagation)
        others = [each for each in metadata.get("finalizers", ()) if each not in _PROPAGATION_FINALIZERS.values()]
        metadata["finalizers"] = [*others, finalizer] if finalizer and dependents else others
        if not metadata["finalizers"]:
            del metadata["finalizers"]
    elif before is None or seconds < before:
        metadata["deletionGracePeriodSeconds"] = seconds


def pod_is_over(pod: Object) -> bool:
    """Return whether a pod's phase is final."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_held(obj: Object) -> bool:
    """Return whether a finalizer, or processes that have to end, keep an object that is marked for deletion."""
    return bool(obj["metadata"].get("finalizers") or obj["metadata"].get("deletionGracePeriodSeconds"))
