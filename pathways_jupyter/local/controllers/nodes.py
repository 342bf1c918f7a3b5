"""Node controller: creates the nodes of the cluster's slices, recreates deleted ones, and evicts pods from failed ones.

A slice's nodes look as on GKE: topology labels, one node pool per slice, and chips to request. They are all this
machine, so they fail only when a user makes them: with ``kubectl cordon``, ``drain``, ``taint``, ``delete node``, or a
status whose Ready condition is not True. A deleted node comes back after a while, as GKE repairs its node pools.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence

from pathways_jupyter.base import tpu
from pathways_jupyter.base.tpu import InstanceType
from pathways_jupyter.local.apiserver.api_discovery import VERSION
from pathways_jupyter.local.apiserver.object_lifecycle import pod_is_over
from pathways_jupyter.local.apiserver.patch import clone
from pathways_jupyter.local.apiserver.resources import NODES, PODS, Object
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.apiserver.strategy import now
from pathways_jupyter.local.apiserver.watch_delivery import WatchEvent
from pathways_jupyter.local.controllers.fitting import NOT_READY, untolerated
from pathways_jupyter.local.controllers.reconciler import Key, Reconciler, condition, itself, key_of, set_condition
from pathways_jupyter.local.event_recorder import Recorder
from pathways_jupyter.service import names

REPAIR_SECONDS = 10.0
"""Time that a deleted node stays away."""
CPU_POOL = "cpu-np"
"""The name that Pathways' own tools expect of the node pool without TPUs."""
_ZONE = "local-a"


class NodeController(Reconciler):
    """Keeps the cluster's nodes registered.

    Args:
      wanted: The nodes; see :func:`nodes_for`.
      address: Returns the address of a node, by name.
      repair_seconds: How long a deleted node stays away.
    """

    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        declared: Sequence[Object],
        *,
        address: Callable[[str], str],
        repair_seconds: float = REPAIR_SECONDS,
    ) -> None:
        super().__init__(store, {NODES: itself, PODS: _node_of})
        self._recorder = recorder
        self._wanted = {node["metadata"]["name"]: node for node in declared}
        self._address = address
        self._repair_seconds = repair_seconds
        self._missing: dict[str, float] = {}

    def start(self) -> None:
        """Register the nodes and begin to reconcile them."""
        self.want(list(self._wanted.values()))
        super().start()

    def want(self, nodes: Sequence[Object]) -> None:
        """Keep these nodes registered from now on; register those that are missing."""
        self._wanted = {node["metadata"]["name"]: node for node in nodes}
        for name in self._wanted:
            if self._store.find(NODES, "", name) is None and name not in self._missing:
                self.register(self._wanted[name])

    def reconcile(self, key: Key) -> float | None:
        """Reconcile one node and the pods on it; return the seconds after which to look again, or None."""
        _, name = key
        node = self._store.find(NODES, "", name)
        if node is None:
            for pod in self._pods_on(name):
                self._evict(pod, "DeletionByPodGC", "PodGC: node no longer exists", 0)
            if name not in self._wanted:
                # Where it is wanted again later, nothing repairs it.
                self._missing.pop(name, None)
                return None
            left = self._missing.setdefault(name, time.monotonic()) + self._repair_seconds - time.monotonic()
            if left <= 0:
                self.register(self._wanted[name])
            return left if left > 0 else None
        self._missing.pop(name, None)
        # A node that is not ready has a taint.
        taints = node["spec"].get("taints") or []
        updated = [each for each in taints if each["key"] != NOT_READY]
        if condition(node.get("status", {}), "Ready") is None:
            updated.append({"key": NOT_READY, "effect": "NoExecute"})
        if len(updated) != len(taints):
            self._store.update(NODES, {**node, "spec": {**node["spec"], "taints": updated}})
        if not any(each["effect"] == "NoExecute" for each in node["spec"].get("taints") or ()):
            return None
        for pod in self._pods_on(name):
            taint = untolerated(pod, node, ("NoExecute",))
            if taint is not None and "deletionTimestamp" not in pod["metadata"]:
                self._evict(pod, "DeletionByTaintManager", f"Taint manager: deleting due to {taint['key']}", None)
        return None

    def register(self, node: Object) -> None:
        """Register a node; one that is not wanted is not repaired when it is deleted."""
        node, name = clone(node), node["metadata"]["name"]
        status = node.pop("status")
        addresses = [{"type": "InternalIP", "address": self._address(name)}, {"type": "Hostname", "address": name}]
        self._store.create(NODES, node)
        self._store.edit(
            NODES, "", name, lambda copy: copy.update(status={**status, "addresses": addresses}), subresource="status"
        )
        self._recorder.record(self._store.get(NODES, "", name), "kubelet", "NodeReady", f"Node {name} is ready")

    def _pods_on(self, name: str) -> Sequence[Object]:
        return [pod for pod in self._store.list(PODS) if pod["spec"].get("nodeName") == name]

    def _evict(self, pod: Object, reason: str, message: str, grace: int | None) -> None:
        def change(copy: Object) -> None:
            status = copy.setdefault("status", {})
            set_condition(status, "DisruptionTarget", True, reason=reason, message=message)
            if grace == 0 and not pod_is_over(copy):
                status["phase"] = "Failed"

        self._store.edit(PODS, *key_of(pod), change, subresource="status")
        self._store.delete(PODS, *key_of(pod), grace=grace, uid=pod["metadata"]["uid"])


def nodes_for(instances: Mapping[str, int], *, cpu_nodes: int = 2) -> list[Object]:
    """Return the nodes of a cluster with these slices: one per host, and some without TPUs for all other pods.

    Args:
      instances: Slices per instance type.

    Raises:
      ConfigError: An instance type is not in the catalogue.
    """
    nodes = [cpu_node(f"cpu-{index}") for index in range(cpu_nodes)]
    for name, count in instances.items():
        instance = tpu.parse_instance_type(name)
        for index in range(count):
            nodes += slice_nodes(instance, f"{instance.machine.version}-{instance.topology}-{index}")
    return nodes


def slice_nodes(instance: InstanceType, pool: str) -> list[Object]:
    """Return the nodes of one slice, which are a node pool of their own."""
    marks = {
        names.ACCELERATOR_LABEL: instance.machine.accelerator,
        names.TOPOLOGY_LABEL: instance.topology,
        "cloud.google.com/gke-accelerator-count": str(instance.chips_per_host),
    }
    chips = {names.TPU_RESOURCE: str(instance.chips_per_host)}
    return [_node(f"{pool}-{host}", pool, marks, chips, instance.machine.name) for host in range(instance.hosts)]


def cpu_node(name: str) -> Object:
    """Return a node without TPUs."""
    return _node(name, CPU_POOL, {}, {}, "local-cpu")


def _node(name: str, pool: str, marks: Mapping[str, str], chips: Mapping[str, str], machine: str) -> Object:
    system = platform.system().lower()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    room = {"cpu": "256", "memory": "1Ti", "pods": "1000", **chips}
    taints = [{"key": names.TPU_RESOURCE, "value": "present", "effect": "NoSchedule"}] if chips else []
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": system,
                "kubernetes.io/arch": architecture,
                "node.kubernetes.io/instance-type": machine,
                "topology.kubernetes.io/zone": _ZONE,
                names.NODEPOOL_LABEL: pool,
                **marks,
            },
        },
        "spec": {"providerID": f"local://{name}", **({"taints": taints} if taints else {})},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "kubelet is posting ready status",
                    "lastTransitionTime": now(),
                    "lastHeartbeatTime": now(),
                }
            ],
            "nodeInfo": {
                "architecture": architecture,
                "operatingSystem": system,
                "osImage": platform.platform(terse=True),
                "kernelVersion": platform.release(),
                "kubeletVersion": VERSION["gitVersion"],
                "kubeProxyVersion": VERSION["gitVersion"],
                "containerRuntimeVersion": "processes://1",
                "machineID": name,
                "systemUUID": name,
                "bootID": name,
            },
        },
    }


def _node_of(change: WatchEvent) -> Sequence[Key]:
    """Return the node of a pod that has just been bound: it may have been deleted or tainted meanwhile."""
    node = change.object["spec"].get("nodeName")
    before = change.previous.object["spec"].get("nodeName") if change.previous is not None else None
    return (("", node),) if node and node != before else ()
