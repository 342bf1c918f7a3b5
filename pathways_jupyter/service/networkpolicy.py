"""NetworkPolicies that close the ports of proxies and resource managers to the rest of the cluster.

A proxy does not authenticate its clients, and runs what they send, including pickled functions: any pod that reaches
its port can read the session's arrays and run code on the TPU hosts. A tunnel needs no open port, because a
port-forward comes from the node's kubelet into the pod's network namespace, where no policy applies. A notebook in the
cluster connects directly; its session has a policy of its own, which lets in the notebook's pod.

Policies have two limits. They do not apply to pods on the host network (workers deployed with ``--host-network``, and
proxies with ``host_network:true``): for those, use firewall rules. And the cluster's network must enforce policies, as
GKE does with Dataplane V2 or with network policy enforcement enabled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pathways_jupyter.service import names

Manifest = dict[str, Any]

PROXIES = "pathways-proxies"
"""Name of the policy for the proxies of all sessions in a namespace."""


def for_proxies(namespace: str = "") -> Manifest:
    """Return the policy that denies all ingress to the proxies of a namespace (when empty, the current one)."""
    selector = {
        "matchLabels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
        "matchExpressions": [{"key": names.SESSION_LABEL, "operator": "Exists"}],
    }
    return _policy(PROXIES, namespace, selector, [])


def for_session(job: Manifest, notebook: Mapping[str, Any], port: int) -> Manifest:
    """Return the policy that allows only the pod of a notebook into the proxy of its session.

    Args:
      job: The proxy's Job as the API server created it; the policy is deleted with it.
      notebook: The notebook's pod. Policies select by labels: a pod with the same set of labels may connect as well.
    """
    metadata, pod = job["metadata"], notebook["metadata"]
    source: Manifest = {"podSelector": {"matchLabels": dict(pod["labels"])}}
    if pod["namespace"] != metadata["namespace"]:
        source["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": pod["namespace"]}}
    selector = {"matchLabels": {names.SESSION_LABEL: metadata["labels"][names.SESSION_LABEL]}}
    ingress = [{"from": [source], "ports": [{"protocol": "TCP", "port": port}]}]
    manifest = _policy(metadata["name"], metadata["namespace"], selector, ingress)
    manifest["metadata"]["labels"] = dict(metadata["labels"])
    reference = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    manifest["metadata"]["ownerReferences"] = [{**reference, "controller": False, "blockOwnerDeletion": False}]
    return manifest


def for_resource_manager(service: str, nodes: Sequence[str], namespace: str = "") -> Manifest:
    """Return the policy that allows only proxies, pods of its own service and nodes into a service's resource manager.

    Args:
      nodes: Address ranges of the cluster's nodes, e.g. ``10.128.0.0/20``, for workers on the host network: they
        connect from their node's address, and without these ranges their service does not start.
    """
    selector = {"matchLabels": {names.JOBSET_NAME_LABEL: service, names.REPLICATED_JOB_LABEL: names.HEAD_JOB}}
    sources = [
        {"podSelector": {"matchLabels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}}},
        {"podSelector": {"matchLabels": {names.JOBSET_NAME_LABEL: service}}},
        *({"ipBlock": {"cidr": each}} for each in nodes),
    ]
    return _policy(name_for_resource_manager(service), namespace, selector, [{"from": sources}])


def name_for_resource_manager(service: str) -> str:
    """Return the name of the policy of a service's resource manager."""
    return f"{service}-resource-manager"


def covering(policies: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Return those of `policies` that apply to ingress into a pod with these labels."""
    specs = [(each, each.get("spec") or {}) for each in policies]
    return [
        each
        for each, spec in specs
        # A policy without types is for ingress.
        if "Ingress" in (spec.get("policyTypes") or ["Ingress"]) and _selects(spec.get("podSelector") or {}, labels)
    ]


def is_open(policy: Mapping[str, Any]) -> bool:
    """Return whether `policy` allows ingress from every pod of the cluster, at least to some port."""
    rules = (policy.get("spec") or {}).get("ingress") or []
    return any(not rule.get("from") or any(map(_is_anyone, rule["from"])) for rule in rules)


def _policy(name: str, namespace: str, selector: Manifest, ingress: list[Manifest]) -> Manifest:
    metadata: Manifest = {"name": name, "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}}
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _is_anyone(source: Mapping[str, Any]) -> bool:
    """Return whether every pod is among the sources that one entry of a rule allows."""
    if source.get("ipBlock"):
        return source["ipBlock"] in ({"cidr": "0.0.0.0/0"}, {"cidr": "::/0"})
    # Without a selector of namespaces, the pods of the policy's own namespace are meant.
    selectors = [source.get(kind) for kind in ("namespaceSelector", "podSelector")]
    return selectors[0] is not None and not any(value for each in selectors for value in (each or {}).values())


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches these labels; an empty one matches everything."""
    selected: Mapping[str, str] = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in selected.items()):
        return False
    for each in selector.get("matchExpressions") or ():
        key, values = each.get("key"), each.get("values") or ()
        fits = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not fits.get(str(each.get("operator")), False):
            return False
    return True
