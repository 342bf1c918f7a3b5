"""Garbage collector: deletes objects whose owners are gone, and serves foreground and orphan deletion."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.local.apiserver.resources import CRDS, EVENTS, Object, ResourceType
from pathways_jupyter.local.apiserver.watch_delivery import WatchEvent, WatchEventType
from pathways_jupyter.local.controllers.reconciler import Follower, key_of

_log = logging.getLogger(__name__)

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class GarbageCollector(Follower):
    """Watches every type of object, custom resources included."""

    def start(self) -> None:
        """Begin with all existing objects."""
        for resource in self._store.resources:
            if resource.key != EVENTS.key and resource.key not in self._watches:
                self.follow(resource, functools.partial(self._handle_all, resource))

    def _handle_all(self, resource: ResourceType, changes: Sequence[WatchEvent]) -> None:
        for change in changes:
            try:
                self._handle(resource, change)
            except ApiError as error:
                _log.info("Garbage collection of %s: %s", resource.plural, error)
        if resource.key == CRDS.key:
            # There may be new types.
            self.start()

    def _handle(self, resource: ResourceType, change: WatchEvent) -> None:
        obj = change.object
        if change.type is WatchEventType.DELETED:
            for kind, dependent in self._store.dependents(obj["metadata"]["uid"]):
                self._collect(kind, dependent)
            for reference in obj["metadata"].get("ownerReferences") or ():
                # An owner in foreground deletion waits for the end of its dependents.
                owner = self._owner(reference, obj["metadata"].get("namespace", ""))
                metadata = owner[1]["metadata"] if owner is not None else {}
                if owner and "deletionTimestamp" in metadata and FOREGROUND in (metadata.get("finalizers") or ()):
                    self._delete_in_foreground(*owner)
            return
        finalizers = obj["metadata"].get("finalizers") or ()
        if "deletionTimestamp" in obj["metadata"] and FOREGROUND in finalizers:
            self._delete_in_foreground(resource, obj)
        elif "deletionTimestamp" in obj["metadata"] and ORPHAN in finalizers:
            for kind, dependent in self._store.dependents(obj["metadata"]["uid"]):
                self._disown(kind, dependent, {obj["metadata"]["uid"]})
            self._finish(resource, obj, ORPHAN)
        elif change.type is WatchEventType.ADDED and obj["metadata"].get("ownerReferences"):
            self._collect(resource, obj)

    def _collect(self, resource: ResourceType, obj: Object) -> None:
        """Delete an object without a living owner; of one that has other owners, remove the references to lost ones."""
        metadata = obj["metadata"]
        references = metadata.get("ownerReferences") or ()
        gone = {each["uid"] for each in references if self._owner(each, metadata.get("namespace", "")) is None}
        if not gone:
            return
        if len(gone) < len({each["uid"] for each in references}):
            self._disown(resource, obj, gone)
        elif "deletionTimestamp" not in metadata:
            self._store.delete(resource, *key_of(obj), propagation="Background", uid=metadata["uid"])

    def _delete_in_foreground(self, resource: ResourceType, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        blocking = False
        for kind, dependent in self._store.dependents(uid):
            reference = next(each for each in dependent["metadata"]["ownerReferences"] if each["uid"] == uid)
            if len(dependent["metadata"]["ownerReferences"]) > 1:
                self._disown(kind, dependent, {uid})
                continue
            blocking = blocking or bool(reference.get("blockOwnerDeletion"))
            if "deletionTimestamp" not in dependent["metadata"]:
                dependent_uid = dependent["metadata"]["uid"]
                self._store.delete(kind, *key_of(dependent), propagation="Foreground", uid=dependent_uid)
        # Some dependents were removed at once rather than marked: check what is left.
        if not blocking or not self._store.dependents(uid):
            self._finish(resource, owner, FOREGROUND)

    def _owner(self, reference: Object, namespace: str) -> tuple[ResourceType, Object] | None:
        """Return the living object that a reference of an object in `namespace` names, with its type."""
        resource = self._store.resources.of_kind(reference["apiVersion"], reference["kind"])
        if resource is None:
            return None
        owner = self._store.find(resource, namespace if resource.namespaced else "", reference["name"])
        return (resource, owner) if owner is not None and owner["metadata"]["uid"] == reference["uid"] else None

    def _disown(self, resource: ResourceType, obj: Object, owners: set[str]) -> None:
        def change(copy: Object) -> None:
            references = copy["metadata"].get("ownerReferences") or ()
            copy["metadata"]["ownerReferences"] = [each for each in references if each["uid"] not in owners]

        self._store.edit(resource, *key_of(obj), change)

    def _finish(self, resource: ResourceType, obj: Object, finalizer: str) -> None:
        current = self._store.find(resource, *key_of(obj))
        finalizers = current["metadata"].get("finalizers") or () if current is not None else ()
        if finalizer in finalizers:
            rest = [each for each in finalizers if each != finalizer]
            self._store.edit(resource, *key_of(obj), lambda copy: copy["metadata"].update(finalizers=rest))
