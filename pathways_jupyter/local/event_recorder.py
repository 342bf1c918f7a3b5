"""Recorder of the Events that ``kubectl describe`` shows: what the cluster did to an object, and why."""

from __future__ import annotations

import contextlib
import secrets
from collections import OrderedDict

from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.local.apiserver.resources import EVENTS, Object
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.strategy import now

KEPT = 1_000
"""Events that are kept; the oldest are removed first. A real cluster keeps those of one hour."""


class Recorder:
    """Writes events into a store, repeated ones as one event with a count."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # By object, reason and message, the one that happened last at the end.
        self._written: OrderedDict[tuple[str, str, str], tuple[str, str]] = OrderedDict()

    def record(self, obj: Object, component: str, reason: str, message: str, *, warning: bool = False) -> None:
        """Write one event about `obj`."""
        metadata = obj["metadata"]
        namespace = metadata.get("namespace") or "default"
        key = (metadata["uid"], reason, message)
        time = now()

        def repeat(event: Object) -> None:
            event["count"] = event.get("count", 1) + 1
            event["lastTimestamp"] = time

        with contextlib.suppress(ApiError):
            written = self._written.pop(key, None)
            # A user may have deleted it: kubectl delete events --all.
            if written is not None and self._store.find(EVENTS, *written) is not None:
                self._store.edit(EVENTS, *written, repeat)
            else:
                written = (namespace, f"{metadata['name']}.{secrets.token_hex(8)}")
                self._store.create(
                    EVENTS,
                    {
                        "metadata": {"namespace": namespace, "name": written[1]},
                        "involvedObject": {
                            "apiVersion": obj["apiVersion"],
                            "kind": obj["kind"],
                            "name": metadata["name"],
                            "namespace": metadata.get("namespace", ""),
                            "uid": metadata["uid"],
                            "resourceVersion": metadata.get("resourceVersion", ""),
                        },
                        "type": "Warning" if warning else "Normal",
                        "reason": reason,
                        "message": message,
                        "source": {"component": component},
                        "reportingComponent": component,
                        "reportingInstance": "",
                        "firstTimestamp": time,
                        "lastTimestamp": time,
                        "count": 1,
                    },
                )
            self._written[key] = written
        while len(self._written) > KEPT:
            _, (namespace, name) = self._written.popitem(last=False)
            with contextlib.suppress(ApiError):
                self._store.delete(EVENTS, namespace, name)
