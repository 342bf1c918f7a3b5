"""Scheduler: binds pods to nodes that fit them, or records why there is none."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.local.apiserver.object_lifecycle import pod_is_over
from pathways_jupyter.local.apiserver.patch import clone
from pathways_jupyter.local.apiserver.resources import NODES, PODS, Object
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.watch_delivery import WatchEvent, WatchEventType
from pathways_jupyter.local.controllers.fitting import Occupancy, exclusive
from pathways_jupyter.local.controllers.reconciler import (
    EVERYTHING,
    Key,
    Reconciler,
    controller_of,
    everything,
    key_of,
    set_condition,
)
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.local.settings import HOLLOW_ANNOTATION

_log = logging.getLogger(__name__)


class Scheduler(Reconciler):
    """Places pods when they appear, and tries again when room may have become free."""

    def __init__(self, store: Store, recorder: Recorder) -> None:
        super().__init__(store, {NODES: everything, PODS: _of_pod})
        self._recorder = recorder

    def reconcile(self, key: Key) -> None:
        """Place the pods that wait for a node, in the order of their creation."""
        pods = self._store.list(PODS)
        waiting = [pod for pod in pods if _waits(pod)]
        if not waiting:
            return
        waiting.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
        nodes = self._store.list(NODES)
        occupancy = Occupancy(nodes, (pod for pod in pods if pod["spec"].get("nodeName") and not pod_is_over(pod)))
        together = Counter((controller_of(pod) or {}).get("uid") for pod in waiting)
        first = 0
        for pod in waiting:
            owner = (controller_of(pod) or {}).get("uid")
            try:
                first = self._place(pod, nodes, occupancy, first, together[owner] if owner else 1)
            except ApiError as error:
                _log.info("Pod %s was not placed: %s", pod["metadata"]["name"], error)
            together[owner] -= 1

    def _place(self, pod: Object, nodes: Sequence[Object], occupancy: Occupancy, first: int, together: int) -> int:
        """Place a pod, trying nodes from `first` on.

        Args:
          together: Pending pods of the same Job, this one included.

        Returns:
          The index of the node to try first for the next pod.
        """
        reasons: Counter[str] = Counter()
        for step in range(len(nodes)):
            index = (first + step) % len(nodes)
            node = nodes[index]
            reason = occupancy.misfit(pod, node) or _too_small(pod, node, occupancy, together)
            if not reason:
                self._bind(pod, node, occupancy)
                return index
            reasons[reason] += 1
        self._refuse(pod, reasons, len(nodes))
        return first

    def _bind(self, pod: Object, node: Object, occupancy: Occupancy) -> None:
        name = node["metadata"]["name"]
        namespace, pod_name = key_of(pod)
        self._store.update(PODS, {**pod, "spec": {**pod["spec"], "nodeName": name}}, subresource="binding")
        occupancy.add(pod, name)
        if (pod["metadata"].get("annotations") or {}).get(HOLLOW_ANNOTATION) != "true":
            message = f"Successfully assigned {namespace}/{pod_name} to {name}"
            self._recorder.record(pod, "default-scheduler", "Scheduled", message)

    def _refuse(self, pod: Object, reasons: Counter[str], nodes: int) -> None:
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        message = f"0/{nodes} nodes are available: {counts}." if counts else "no nodes available to schedule pods"
        status: Object = clone(pod.get("status", {}))
        messages = [each.get("message") for each in status.get("conditions") or () if each["type"] == "PodScheduled"]
        if message not in messages:
            set_condition(status, "PodScheduled", False, reason="Unschedulable", message=message)
            self._store.update(PODS, {**pod, "status": status}, subresource="status")
            self._recorder.record(pod, "default-scheduler", "FailedScheduling", message, warning=True)


def _waits(pod: Object) -> bool:
    """Return whether a pod waits for a node."""
    spec = pod["spec"]
    placed = spec.get("nodeName") or "deletionTimestamp" in pod["metadata"] or pod_is_over(pod)
    return not placed and not spec.get("schedulingGates")


def _of_pod(change: WatchEvent) -> Sequence[Key]:
    """Return the key if a pod has begun to wait, or may have left room; not if only its status says why it waits."""
    pod, before = change.object, change.previous
    left = change.type is WatchEventType.DELETED or pod_is_over(pod)
    begun = _waits(pod) and not (before is not None and _waits(before.object))
    return EVERYTHING if left or begun else ()


def _too_small(pod: Object, node: Object, occupancy: Occupancy, together: int) -> str:
    """Return the reason why a Job that wants an exclusive topology domain does not fit into `node`'s; empty if it does.

    Two Jobs must not each take half of what both need.
    """
    key, _ = exclusive(pod)
    if not key or together < 2:
        return ""
    fitting = sum(1 for each in occupancy.neighbours(node, key) if not occupancy.misfit(pod, each))
    return "" if fitting >= together else f"node(s) were in a {key} with too few nodes for the Job"
