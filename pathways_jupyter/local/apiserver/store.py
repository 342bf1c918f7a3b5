"""The cluster's state: all objects, their changes, and the watches that receive them.

Synchronous and meant for one event loop: a call is a transaction. Controllers and the kubelet use it directly, clients
through the HTTP layer. Objects given out are shared, also by an object's successive states, and must only be read;
only :meth:`Store.get` gives a copy that may be changed.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from pathways_jupyter.local.apiserver import (
    api_errors,
    definitions,
    object_lifecycle,
    strategy,
)
from pathways_jupyter.local.apiserver import resources as kinds
from pathways_jupyter.local.apiserver.api_errors import StatusError
from pathways_jupyter.local.apiserver.patch import clone
from pathways_jupyter.local.apiserver.resources import CRDS, NAMESPACES, Object, Registry, ResourceType
from pathways_jupyter.local.apiserver.selectors import Test
from pathways_jupyter.local.apiserver.watch_delivery import ObjectState, Table, Watch, WatchEvent, WatchEventType
from pathways_jupyter.local.apiserver.workload_strategy import admit_pod

_Key = tuple[tuple[str, str], str, str]
"""Type key, namespace and name of an object."""


class Store:
    """All objects of one cluster."""

    def __init__(self) -> None:
        self.resources = Registry()
        self.revision = 0
        self._tables = defaultdict[tuple[str, str], Table](Table)
        self._dependents: dict[str, set[_Key]] = {}
        for name in object_lifecycle.LASTING_NAMESPACES:
            self.create(NAMESPACES, {"metadata": {"name": name}})
        for definition in definitions.DEFINITIONS:
            self.create(CRDS, definition)

    def get(self, resource: ResourceType, namespace: str, name: str) -> Object:
        """Return a copy of one object; `namespace` is empty for cluster-wide types.

        Raises:
          StatusError: 404.
        """
        obj: Object = clone(self.record(resource, namespace, name).object)
        return obj

    def find(self, resource: ResourceType, namespace: str, name: str) -> Object | None:
        """Return one object, shared, or None when there is no such object."""
        record = self._tables[resource.key].objects.get((namespace, name))
        return None if record is None else record.object

    def record(self, resource: ResourceType, namespace: str, name: str) -> ObjectState:
        """Return one object's current state, shared.

        Raises:
          StatusError: 404.
        """
        record = self._tables[resource.key].objects.get((namespace, name))
        if record is None:
            raise api_errors.not_found(resource, name)
        return record

    def list(self, resource: ResourceType, namespace: str = "", test: Test | None = None) -> Sequence[Object]:
        """Return objects in order of namespace and name, shared; all namespaces when `namespace` is empty."""
        return [record.object for record in self.records(resource, namespace, test)]

    def records(self, resource: ResourceType, namespace: str = "", test: Test | None = None) -> Sequence[ObjectState]:
        """Like :meth:`list`, with the encoded form at hand."""
        return self._tables[resource.key].select(namespace, test)

    def check_history(self, resource: ResourceType, since: int) -> None:
        """Check that all changes of one type since a revision are remembered.

        Raises:
          StatusError: 410, they are not.
        """
        self._tables[resource.key].check_history(since)

    def dependents(self, uid: str) -> Sequence[tuple[ResourceType, Object]]:
        """Everything whose ownerReferences name `uid`, shared."""
        keys = []
        for key, namespace, name in sorted(self._dependents.get(uid, ())):
            resource, record = self.resources.stored(key), self._tables[key].objects.get((namespace, name))
            if resource is not None and record is not None:
                keys.append((resource, record.object))
        return keys

    def watch(
        self, resource: ResourceType, namespace: str = "", since: int | None = None, test: Test | None = None
    ) -> Watch:
        """Watch changes from revision `since` on; None starts with an ADDED for every existing object.

        Raises:
          StatusError: 410 when history does not reach back to `since`.
        """
        return self._tables[resource.key].watch(namespace, since, test)

    def create(self, resource: ResourceType, obj: Object, *, namespace: str = "", dry_run: bool = False) -> Object:
        """Add an object, and return it as stored.

        Raises:
          StatusError: 403, 404 (no such namespace), 409 (the name is taken), 422 (the object breaks a rule).
        """
        resource = self._served(resource)
        obj = clone(obj)
        metadata = obj.setdefault("metadata", {})
        obj["kind"], obj["apiVersion"] = resource.kind, resource.api_version
        if resource.stored_version:
            obj["apiVersion"] = f"{resource.group}/{resource.stored_version}"
        object_lifecycle.place(resource, metadata, namespace, self.find)
        where, name = metadata.get("namespace", ""), metadata["name"]
        if (where, name) in self._tables[resource.key].objects:
            raise StatusError(
                409, f'{resource.qualified} "{name}" already exists', resource, name, reason="AlreadyExists"
            )
        for field in (*object_lifecycle.SYSTEM_FIELDS, "resourceVersion"):
            metadata.pop(field, None)
        metadata["uid"], metadata["creationTimestamp"] = str(uuid.uuid4()), strategy.now()
        if resource.generations:
            metadata["generation"] = 1
        if resource.key == kinds.PODS.key:
            admit_pod(obj, self.find)
        strategy.prepare(resource, obj, None)
        self._commit(resource, obj, WatchEventType.ADDED, dry_run)
        if resource.key == NAMESPACES.key and not dry_run:
            self.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace=name)
        return obj

    def update(self, resource: ResourceType, obj: Object, *, subresource: str = "", dry_run: bool = False) -> Object:
        """Replace an object; with `subresource` ``"status"`` only its status, without it everything except the status.

        ``"binding"`` sets the node of a pod, which nothing else can change.

        Raises:
          StatusError: 404; 409 when `obj` carries a resourceVersion or uid that is not the present one; 422.
        """
        resource = self._served(resource)
        sent = obj.get("metadata") or {}
        namespace, name = sent.get("namespace", ""), sent.get("name", "")
        old = self.record(resource, namespace, name).object
        current = old["metadata"]
        if sent.get("uid") and sent["uid"] != current["uid"]:
            why = f"Precondition failed: UID in precondition: {sent['uid']}, UID in object meta: {current['uid']}"
            raise api_errors.conflict(resource, name, why)
        if sent.get("resourceVersion") and sent["resourceVersion"] != current["resourceVersion"]:
            raise api_errors.conflict(resource, name)
        new = object_lifecycle.revised(resource, clone(obj), old, subresource)
        new["metadata"]["resourceVersion"] = current["resourceVersion"]
        if new == old:
            return new
        over = current.get("deletionTimestamp") and not object_lifecycle.is_held(new)
        return self._commit(resource, new, WatchEventType.DELETED if over else WatchEventType.MODIFIED, dry_run)

    def edit(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        change: Callable[[Object], Any],
        *,
        subresource: str = "",
    ) -> Object:
        """Read an object, let `change` alter the copy in place, and write it back.

        Raises:
          StatusError: 404 or 422.
        """
        obj = self.get(resource, namespace, name)
        change(obj)
        return self.update(resource, obj, subresource=subresource)

    def delete(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        *,
        grace: int | None = None,
        propagation: str = "",
        uid: str = "",
        revision: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Delete an object, or mark it for deletion while a finalizer or a running pod holds it.

        Args:
          grace: Seconds that a pod's processes get to end; None for what the pod says. 0 removes it now.
          propagation: ``Background``, ``Foreground`` or ``Orphan``; empty for the type's own default.
          uid: Delete only the object with this uid.
          revision: Delete only at this resourceVersion.

        Raises:
          StatusError: 403 (it is a namespace that stays), 404, or 409 when a precondition does not hold.
        """
        old = self.record(resource, namespace, name).object
        metadata = old["metadata"]
        conditions = (("UID", uid, metadata["uid"]), ("ResourceVersion", revision, metadata["resourceVersion"]))
        for what, expected, actual in conditions:
            if expected and expected != actual:
                why = f"Precondition failed: {what} in precondition: {expected}, {what} in object meta: {actual}"
                raise api_errors.conflict(resource, name, why)
        new: Object = clone(old)
        object_lifecycle.mark_deleted(resource, new, grace, propagation, dependents=metadata["uid"] in self._dependents)
        if resource.key == NAMESPACES.key:
            new["status"] = {**new.get("status", {}), "phase": "Terminating"}
        elif not object_lifecycle.is_held(new):
            return self._commit(resource, new, WatchEventType.DELETED, dry_run)
        if new != old:
            self._commit(resource, new, WatchEventType.MODIFIED, dry_run)
        if resource.key == NAMESPACES.key and not dry_run:
            for each in [each for each in self.resources if each.namespaced]:
                for obj in self.list(each, name):
                    self.delete(each, name, obj["metadata"]["name"], propagation="Background")
            self._end_namespace(name)
        return new

    def close(self) -> None:
        """End every watch."""
        for table in self._tables.values():
            table.close()

    def _served(self, resource: ResourceType) -> ResourceType:
        """Return the type as currently served: with the schema of its definition, where it has one."""
        return self.resources.find(resource.group, resource.version, resource.plural) or resource

    def _end_namespace(self, name: str) -> None:
        """Remove a namespace that is marked for deletion and empty."""
        home = self.find(NAMESPACES, "", name)
        if (
            home is not None
            and home["metadata"].get("deletionTimestamp")
            and not any(name == where for table in self._tables.values() for where, _ in table.objects)
        ):
            self._commit(NAMESPACES, clone(home), WatchEventType.DELETED)

    def _commit(self, resource: ResourceType, obj: Object, kind: WatchEventType, dry_run: bool = False) -> Object:
        """Make `obj` the object's state, or its last one, and return it."""
        if dry_run:
            return obj
        self.revision += 1
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(self.revision)
        # By this, clients see when the server received a write, whatever the clock of its author says.
        writer = {"manager": "unknown", "operation": "Update", "apiVersion": obj["apiVersion"], "time": strategy.now()}
        metadata["managedFields"] = [{**writer, "fieldsType": "FieldsV1", "fieldsV1": {}}]
        record, deleted = ObjectState(obj), kind is WatchEventType.DELETED
        previous = self._put((resource.key, metadata.get("namespace", ""), metadata["name"]), record, deleted)
        self._tables[resource.key].publish(WatchEvent(kind, record, previous, self.revision))
        if resource.key == CRDS.key and not deleted:
            self.resources.define(obj)
        elif resource.key == CRDS.key:
            key = (obj["spec"]["group"], obj["spec"]["names"]["plural"])
            if (custom := self.resources.stored(key)) is not None:
                for each in self.list(custom):
                    self._commit(custom, clone(each), WatchEventType.DELETED)
            self.resources.forget(obj)
            self._tables[key].close()
        if deleted and resource.namespaced:
            self._end_namespace(metadata["namespace"])
        return obj

    def _put(self, place: _Key, record: ObjectState, deleted: bool) -> ObjectState | None:
        """Store an object's state, or remove it; return the previous one."""
        key, namespace, name = place
        objects = self._tables[key].objects
        previous = objects.pop((namespace, name), None)
        for uid in _owners(previous) - (set() if deleted else _owners(record)):
            self._dependents[uid].discard(place)
            if not self._dependents[uid]:
                del self._dependents[uid]
        if not deleted:
            objects[namespace, name] = record
            for uid in _owners(record):
                self._dependents.setdefault(uid, set()).add(place)
        return previous


def _owners(record: ObjectState | None) -> set[str]:
    if record is None:
        return set()
    return {each["uid"] for each in record.object["metadata"].get("ownerReferences") or ()}
