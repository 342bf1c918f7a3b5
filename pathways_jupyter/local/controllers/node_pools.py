"""Node pools that come and go with jobs, as GKE's node auto-provisioning makes them.

The nodes of a new cluster belong to its services. A pod of any other JobSet that fits nowhere gets nodes of its own: a
whole slice, or a node without TPUs. They are removed once no pod has been on them for a while. The pods of services get
none: those of the cluster's own wait for their nodes to be repaired, those of deployed ones for spare or free nodes.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.tpu import InstanceType
from pathways_jupyter.local.apiserver.object_lifecycle import pod_is_over
from pathways_jupyter.local.apiserver.resources import JOBSETS, NODES, PODS, Object
from pathways_jupyter.local.apiserver.selectors import labels_of
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.controllers.fitting import selects
from pathways_jupyter.local.controllers.nodes import CPU_POOL, NodeController, cpu_node, slice_nodes
from pathways_jupyter.local.controllers.reconciler import Key, Reconciler, controller_of, everything
from pathways_jupyter.service import names

PROVISIONED_LABEL = "pathways-jupyter/provisioned"
MOST_NODES = 512
"""Nodes that are made for jobs; further pods wait for one to become free."""
REQUESTED_LABELS = re.compile(r"cloud\.google\.com/(reservation-.+|gke-spot)")
"""Labels that new nodes have where a pod selects them, as on GKE: they say what the nodes are made from."""
IDLE_SECONDS = 10.0


@dataclass(frozen=True)
class _Kind:
    """A kind of node pool: a slice of an instance type, or one node without TPUs; and labels that pods request."""

    instance: InstanceType | None
    labels: tuple[tuple[str, str], ...] = ()

    def nodes(self, pool: str) -> list[Object]:
        nodes = [cpu_node(pool)] if self.instance is None else slice_nodes(self.instance, pool)
        for node in nodes:
            node["metadata"]["labels"] |= {PROVISIONED_LABEL: pool, **dict(self.labels)}
        return nodes

    def has(self, node: Object) -> bool:
        """Return whether `node` is of a pool of this kind."""
        labels = node["metadata"]["labels"]
        instance, machine = self.instance, labels["node.kubernetes.io/instance-type"]
        fits = (
            names.ACCELERATOR_LABEL not in labels
            if instance is None
            else (machine, labels.get(names.TOPOLOGY_LABEL)) == (instance.machine.name, instance.topology)
        )
        return fits and set(self.labels) <= labels.items()


class NodePoolController(Reconciler):
    """Makes and removes the nodes of jobs."""

    def __init__(self, store: Store, nodes: NodeController) -> None:
        super().__init__(store, {PODS: everything, NODES: everything})
        self._nodes = nodes
        self._idle_since: dict[str, float] = {}

    def reconcile(self, key: Key) -> float | None:
        """Make missing nodes and remove idle ones; return the seconds after which to look again, or None."""
        pods = self._store.list(PODS)
        waiting = [pod for pod in pods if self._waits_for_node(pod)]
        made = [node for node in self._store.list(NODES) if PROVISIONED_LABEL in node["metadata"]["labels"]]
        if not waiting and not made:
            return None
        used = {pod["spec"].get("nodeName") for pod in pods if not pod_is_over(pod)}
        pools: dict[str, list[Object]] = defaultdict(list)
        for node in made:
            pools[node["metadata"]["labels"][PROVISIONED_LABEL]].append(node)
        free = {pool: nodes for pool, nodes in pools.items() if not used & {each["metadata"]["name"] for each in nodes}}
        room = MOST_NODES - len(made)
        for kind, count in _wanted(waiting).items():
            count -= sum(1 for nodes in free.values() if kind.has(nodes[0]))
            for _ in range(max(0, count)):
                new = _pool(kind, pools)
                if (room := room - len(new)) < 0:
                    break
                for node in new:
                    self._nodes.register(node)
        # A node that is deleted takes its pods' logs with it, so it stays for pods that are over.
        bound = {pod["spec"].get("nodeName") for pod in pods}
        empty = {
            pool: nodes for pool, nodes in free.items() if not bound & {each["metadata"]["name"] for each in nodes}
        }
        return self._remove_idle(empty, needed=bool(waiting))

    def _remove_idle(self, empty: dict[str, list[Object]], *, needed: bool) -> float | None:
        now = time.monotonic()
        self._idle_since = {pool: self._idle_since.get(pool, now) for pool in empty if not needed}
        left = math.inf
        for pool, since in self._idle_since.items():
            if now - since < IDLE_SECONDS:
                left = min(left, since + IDLE_SECONDS - now)
                continue
            for node in empty[pool]:
                self._store.delete(NODES, "", node["metadata"]["name"])
        return None if left == math.inf else left

    def _waits_for_node(self, pod: Object) -> bool:
        """Return whether a pod fits nowhere, and belongs to a JobSet that is no service."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        if spec.get("nodeName") or "deletionTimestamp" in metadata:
            return False
        if not any(each.get("reason") == "Unschedulable" for each in status.get("conditions") or ()):
            return False
        name = labels_of(pod).get(names.JOBSET_NAME_LABEL)
        jobset = self._store.find(JOBSETS, metadata["namespace"], name) if name else None
        return jobset is not None and not {names.EMBEDDED_LABEL, names.SERVICE_LABEL} & set(labels_of(jobset))


def _wanted(waiting: Iterable[Object]) -> Counter[_Kind]:
    """Return how many pools of each kind the pods need: a slice for each Job, and a node for each pod without TPUs."""
    jobs: set[tuple[_Kind, str]] = set()
    for pod in waiting:
        selector = pod["spec"].get("nodeSelector") or {}
        uid = pod["metadata"]["uid"]
        kind = _Kind(None, tuple((key, value) for key, value in selector.items() if REQUESTED_LABELS.fullmatch(key)))
        if names.ACCELERATOR_LABEL in selector:
            instance = _instance_type(pod, selector)
            if instance is None:
                continue
            kind, uid = replace(kind, instance=instance), (controller_of(pod) or {}).get("uid") or uid
        if selects(pod["spec"], kind.nodes("new")[0]):
            jobs.add((kind, uid))
    return Counter(kind for kind, _ in jobs)


def _instance_type(pod: Object, selector: Mapping[str, Any]) -> InstanceType | None:
    """Return the kind of slice that a pod selects; None when there is no such kind."""
    chips = {
        str(limit)
        for container in pod["spec"]["containers"]
        if (limit := ((container.get("resources") or {}).get("limits") or {}).get(names.TPU_RESOURCE))
    }
    for machine in tpu.MACHINES:
        if machine.accelerator != selector[names.ACCELERATOR_LABEL]:
            continue
        try:
            kind = tpu.parse_instance_type(f"{machine.name}:{selector.get(names.TOPOLOGY_LABEL, '')}")
        except ConfigError:
            continue
        if chips <= {str(kind.chips_per_host)}:
            return kind
    return None


def _pool(kind: _Kind, pools: dict[str, list[Object]]) -> list[Object]:
    """Return the nodes of a new pool, which is added to `pools`."""
    instance = kind.instance
    stem = CPU_POOL if instance is None else f"{instance.machine.version}-{instance.topology}"
    number = next(number for number in range(len(pools) + 1) if f"{stem}-job-{number}" not in pools)
    name = f"{stem}-job-{number}"
    pools[name] = kind.nodes(name)
    return pools[name]
