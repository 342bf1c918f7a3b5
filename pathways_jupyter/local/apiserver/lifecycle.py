"""Updates and deletion of an object's state: which fields a caller may set, and which are kept."""

from __future__ import annotations

from pathways_jupyter.local.apiserver import object_names, strategy
from pathways_jupyter.local.apiserver.patch import clone
from pathways_jupyter.local.apiserver.resources import PODS, Object, ResourceType

SYSTEM_FIELDS = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
"""Metadata that only the server writes."""
_PROPAGATION_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def revised(resource: ResourceType, new: Object, old: Object, subresource: str) -> Object:
    """Return the next state of `old` when a caller sends `new`; alters `new`.

    Raises:
      StatusError: 422, it changes what must not change.
    """
    if subresource == "status":
        state, managers = new.get("status"), new["metadata"].get("managedFields")
        new = {**clone(old), **({"status": state} if state is not None else {})}
        if managers is not None:
            new["metadata"]["managedFields"] = managers
        return new
    if subresource == "binding":
        # The only way to set the node: an update of the spec cannot, and a binding does not count as one.
        node = new["spec"]["nodeName"]
        new = clone(old)
        new["spec"]["nodeName"] = node
        return new
    new["apiVersion"], new["kind"] = old["apiVersion"], old["kind"]
    metadata, current = new["metadata"], old["metadata"]
    for field in SYSTEM_FIELDS:
        metadata.pop(field, None)
        if field in current:
            metadata[field] = current[field]
    if resource.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = clone(old["status"])
    object_names.check_labels(resource, metadata)
    strategy.prepare_update(resource, new, old)
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
    """
    metadata = obj["metadata"]
    seconds = 0
    if resource.key == PODS.key:
        phase = obj.get("status", {}).get("phase")
        idle = not obj["spec"].get("nodeName") or phase in ("Succeeded", "Failed")
        wish = obj["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
        seconds = 0 if idle else max(0, wish)
    before = metadata.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = strategy.now()
        metadata["deletionGracePeriodSeconds"] = seconds
        finalizer = _PROPAGATION_FINALIZERS.get(propagation or resource.default_propagation)
        kept = [each for each in metadata.get("finalizers", ()) if each not in _PROPAGATION_FINALIZERS.values()]
        metadata["finalizers"] = [*kept, finalizer] if finalizer and dependents else kept
        if not metadata["finalizers"]:
            del metadata["finalizers"]
    elif before is None or seconds < before:
        metadata["deletionGracePeriodSeconds"] = seconds


def is_graceful(obj: Object) -> bool:
    """Whether a deleted object still waits for its processes to end."""
    return bool(obj["metadata"].get("deletionGracePeriodSeconds"))
