"""Fit of a pod on a node: selectors, affinity, taints, TPU chips, ports, and exclusive topology.

CPU and memory are not counted; extended resources such as ``google.com/tpu`` are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.apiserver.selectors import labels_of, matches_selector
from pathways_jupyter.local.controllers.jobset import JOB_KEY_LABEL
from pathways_jupyter.local.controllers.reconciler import condition
from pathways_jupyter.service import builtin_kinds, names, node_fit
from pathways_jupyter.service.service_jobset import EXCLUSIVE

CORDONED = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"


class Occupancy:
    """Resources, ports and topology domains that the pods on nodes occupy."""

    def __init__(self, nodes: Iterable[Object], pods: Iterable[Object]) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self._used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._ports: dict[str, set[int]] = defaultdict(set)
        self._pods: dict[str, list[Object]] = defaultdict(list)
        self._exclusive: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._homes: dict[tuple[str, str], str] = {}
        self._domains: dict[str, dict[str, list[Object]]] = {}
        for pod in pods:
            self.add(pod, pod["spec"]["nodeName"])

    def add(self, pod: Object, node: str) -> None:
        """Count a pod on a node."""
        for resource, amount in extended(pod).items():
            self._used[node][resource] += amount
        self._ports[node] |= host_ports(pod)
        self._pods[node].append(pod)
        key, job = exclusive(pod)
        if key and node in self.nodes:
            domain = labels_of(self.nodes[node]).get(key, "")
            self._exclusive[key, domain].add(job)
            self._homes[key, job] = domain

    def misfit(self, pod: Object, node: Object) -> str:
        """Return the reason why `pod` cannot run on `node`, in the words of a real scheduler; empty when it can."""
        name, spec = node["metadata"]["name"], pod["spec"]
        if not selects(spec, node):
            return "node(s) didn't match Pod's node affinity/selector"
        if (taint := untolerated(pod, node, node_fit.KEEPS_AWAY)) is not None:
            if taint["key"] == CORDONED:
                return "node(s) were unschedulable"
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        if not condition(node.get("status", {}), "Ready"):
            return "node(s) were not ready"
        allocatable = node.get("status", {}).get("allocatable") or {}
        for resource, amount in extended(pod).items():
            if self._used[name][resource] + amount > builtin_kinds.amount(allocatable.get(resource, 0)):
                return f"Insufficient {resource}"
        if self._ports[name] & host_ports(pod):
            return "node(s) didn't have free ports for the requested pod ports"
        return self._topology_misfit(pod, node)

    def neighbours(self, node: Object, key: str) -> Sequence[Object]:
        """Return the nodes that share `node`'s value of the label `key`, itself included."""
        if key not in self._domains:
            domains = self._domains[key] = defaultdict(list)
            for each in self.nodes.values():
                domains[labels_of(each).get(key, "")].append(each)
        return self._domains[key][labels_of(node).get(key, "")]

    def _topology_misfit(self, pod: Object, node: Object) -> str:
        key, job = exclusive(pod)
        if key:
            domain = labels_of(node).get(key)
            home = self._homes.get((key, job))
            if domain is None or (home is not None and home != domain) or self._exclusive[key, domain] - {job}:
                return f"node(s) were in a {key} of another Job"
        affinity = pod["spec"].get("affinity") or {}
        for kind, attracts in (("podAffinity", True), ("podAntiAffinity", False)):
            for term in (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ():
                selected = [
                    name for name, pods in self._pods.items() if any(_is_meant(term, each, pod) for each in pods)
                ]
                topology = term["topologyKey"]
                domains = {labels_of(self.nodes[name]).get(topology) for name in selected if name in self.nodes}
                if (topology in labels_of(node) and labels_of(node)[topology] in domains) is attracts:
                    continue
                # The first of the pods that want to be near pods like themselves may go anywhere.
                if not (attracts and not selected and _is_meant(term, pod, pod)):
                    return "node(s) didn't match pod affinity/anti-affinity rules"
        return ""


def _is_meant(term: Mapping[str, Any], other: Object, pod: Object) -> bool:
    """Return whether `other` is one of the pods that an affinity term of `pod` selects."""
    namespaces = term.get("namespaces") or [pod["metadata"]["namespace"]]
    return other["metadata"]["namespace"] in namespaces and matches_selector(
        term.get("labelSelector") or {}, labels_of(other)
    )


def exclusive(pod: Object) -> tuple[str, str]:
    """Return the topology key of the exclusive domain that the pod's Job wants, and the Job's key; empty if none."""
    key = (pod["metadata"].get("annotations") or {}).get(EXCLUSIVE, "")
    return key, labels_of(pod).get(JOB_KEY_LABEL, "") if key else ""


def extended(pod: Object) -> Mapping[str, int]:
    """Return the sum of the extended resources that the pod's containers request."""
    amounts: dict[str, int] = defaultdict(int)
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        requested = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for resource, amount in requested.items():
            if "/" in resource:
                amounts[resource] += int(builtin_kinds.amount(amount))
    return amounts


def host_ports(pod: Object) -> set[int]:
    """Return the node's ports that the pod occupies."""
    shares = pod["spec"].get("hostNetwork")
    ports = (port for container in pod["spec"]["containers"] for port in container.get("ports") or ())
    return {port["containerPort"] if shares else port["hostPort"] for port in ports if shares or port.get("hostPort")}


def selects(spec: Object, node: Object) -> bool:
    """Return whether the pod's node selector and required node affinity fit `node`."""
    if not matches_selector({"matchLabels": spec.get("nodeSelector") or {}}, labels_of(node)):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        matches_selector({"matchExpressions": term.get("matchExpressions")}, labels_of(node))
        and matches_selector({"matchExpressions": term.get("matchFields")}, fields)
        for term in required.get("nodeSelectorTerms") or ()
    )


def untolerated(pod: Object, node: Object, effects: Sequence[str]) -> Object | None:
    """Return the first taint of `node` with one of `effects` that `pod` does not tolerate.

    What it tolerates for a time, it does not tolerate here: nodes fail on purpose, to see what follows.
    """
    taints = list(node["spec"].get("taints") or ())
    if node["spec"].get("unschedulable"):
        taints.append({"key": CORDONED, "effect": "NoSchedule"})
    if names.TPU_RESOURCE in extended(pod):
        # As on GKE: a pod that requests chips tolerates the taint that keeps all other pods away.
        taints = [each for each in taints if each["key"] != names.TPU_RESOURCE]
    tolerations = [each for each in pod["spec"].get("tolerations") or () if "tolerationSeconds" not in each]
    return node_fit.untolerated(tolerations, taints, effects)
