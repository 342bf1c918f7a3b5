"""Garbage collector: deletes objects whose owners are gone, and serves foreground and orphan deletion."""

from __future__ import annotations

import asyncio
import logging

from pathways_jupyter.errors import ApiError
from pathways_jupyter.local.apiserver.resources import CRDS, EVENTS, Object, ResourceType
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.watch_delivery import Change, ChangeType, Watch

_log = logging.getLogger(__name__)

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class GarbageCollector:
    """Watches every type of object, custom resources included."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watches: dict[tuple[str, str], Watch] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin with all existing objects."""
        self._watch_all()

    async def close(self) -> None:
        """Stop watching."""
        for watch in self._watches.values():
            watch.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _watch_all(self) -> None:
        for resource in self._store.resources:
            if resource.key not in self._watches and resource.key != EVENTS.key:
                watch = self._watches[resource.key] = self._store.watch(resource)
                self._tasks.append(asyncio.create_task(self._follow(resource, watch)))

    async def _follow(self, resource: ResourceType, watch: Watch) -> None:
        while changes := await watch.batch():
            for change in changes:
                try:
                    self._handle(resource, change)
                except ApiError as error:
                    _log.info("Garbage collection of %s: %s", resource.plural, error)
            if resource.key == CRDS.key:
                self._watch_all()
        self._watches.pop(resource.key, None)

    def _handle(self, resource: ResourceType, change: Change) -> None:
        obj = change.object
        if change.type is ChangeType.DELETED:
            for kind, dependent in self._store.dependents(obj["metadata"]["uid"]):
                self._collect(kind, dependent)
            for reference in obj["metadata"].get("ownerReferences") or ():
                self._continue_foreground(obj, reference)
            return
        finalizers = obj["metadata"].get("finalizers") or ()
        if "deletionTimestamp" in obj["metadata"] and FOREGROUND in finalizers:
            self._delete_in_foreground(resource, obj)
        elif "deletionTimestamp" in obj["metadata"] and ORPHAN in finalizers:
            for kind, dependent in self._store.dependents(obj["metadata"]["uid"]):
                self._disown(kind, dependent, {obj["metadata"]["uid"]})
            self._finish(resource, obj, ORPHAN)
        elif change.type is ChangeType.ADDED and obj["metadata"].get("ownerReferences"):
            self._collect(resource, obj)

    def _collect(self, resource: ResourceType, obj: Object) -> None:
        """Delete an object without a living owner; of one that has other owners, remove the references to lost ones."""
        metadata = obj["metadata"]
        references = metadata.get("ownerReferences") or ()
        gone = {each["uid"] for each in references if not self._lives(each, metadata.get("namespace", ""))}
        if not gone:
            return
        if len(gone) < len({each["uid"] for each in references}):
            self._disown(resource, obj, gone)
        elif "deletionTimestamp" not in metadata:
            self._delete(resource, obj, "Background")

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
                self._delete(kind, dependent, "Foreground")
        # Some dependents were removed at once rather than marked: check what is left.
        if not blocking or not self._store.dependents(uid):
            self._finish(resource, owner, FOREGROUND)

    def _continue_foreground(self, obj: Object, reference: Object) -> None:
        """Look again at an owner in foreground deletion, one of whose dependents is gone."""
        resource = self._store.resources.of_kind(reference["apiVersion"], reference["kind"])
        if resource is None:
            return
        namespace = obj["metadata"].get("namespace", "") if resource.namespaced else ""
        owner = self._store.find(resource, namespace, reference["name"])
        if (
            owner is not None
            and owner["metadata"]["uid"] == reference["uid"]
            and "deletionTimestamp" in owner["metadata"]
            and FOREGROUND in (owner["metadata"].get("finalizers") or ())
        ):
            self._delete_in_foreground(resource, owner)

    def _lives(self, reference: Object, namespace: str) -> bool:
        resource = self._store.resources.of_kind(reference["apiVersion"], reference["kind"])
        if resource is None:
            return False
        owner = self._store.find(resource, namespace if resource.namespaced else "", reference["name"])
        return owner is not None and owner["metadata"]["uid"] == reference["uid"]

    def _delete(self, resource: ResourceType, obj: Object, propagation: str) -> None:
        metadata = obj["metadata"]
        self._store.delete(
            resource, metadata.get("namespace", ""), metadata["name"], propagation=propagation, uid=metadata["uid"]
        )

    def _disown(self, resource: ResourceType, obj: Object, owners: set[str]) -> None:
        def change(copy: Object) -> None:
            references = copy["metadata"].get("ownerReferences") or ()
            copy["metadata"]["ownerReferences"] = [each for each in references if each["uid"] not in owners]

        self._store.edit(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"], change)

    def _finish(self, resource: ResourceType, obj: Object, finalizer: str) -> None:
        def change(copy: Object) -> None:
            copy["metadata"]["finalizers"] = [each for each in copy["metadata"]["finalizers"] if each != finalizer]

        current = self._store.find(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        if current is not None and finalizer in (current["metadata"].get("finalizers") or ()):
            self._store.edit(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"], change)
