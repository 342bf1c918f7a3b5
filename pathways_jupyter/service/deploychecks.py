"""Requirements of a cluster for a service; each check says how to fix what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from pathways_jupyter.base.errors import ApiError, PathwaysError, ServiceError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import count, some
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.kube import objects
from pathways_jupyter.kube.client import Client
from pathways_jupyter.kube.objects import JOBSETS, NODES, PODS, Object
from pathways_jupyter.service import checks, names, node_fit, permissions
from pathways_jupyter.service.checks import Finding
from pathways_jupyter.service.service_jobset import EXCLUSIVE, PodPlacement, ServiceSpec


@dataclass
class _Pool:
    """One node pool.

    Attributes:
      nodes: Its nodes that are ready and not cordoned, by name.
    """

    name: str
    accelerator: str = ""
    topology: str = ""
    chips: str = ""
    nodes: dict[str, Object] = field(default_factory=dict)
    embedded: bool = False

    def __str__(self) -> str:
        return (
            f"{self.name} ({self.accelerator} {self.topology}, {count(len(self.nodes), 'node')} of {self.chips} chips)"
        )


async def findings(client: Client, spec: ServiceSpec) -> AsyncIterator[Finding]:
    """Yield the result of each check, in an order in which a later one needs the earlier ones."""
    jobsets = await checks.jobsets(client)
    yield jobsets
    if jobsets.level is Tone.FAIL:
        # Every other finding would only repeat that.
        return
    allowed = await asyncio.gather(
        *(permissions.check(client, spec.namespace, need) for need in permissions.SERVICE_NEEDS)
    )
    for finding in allowed:
        if finding.level is not Tone.OK:
            yield finding
    try:
        taken = await objects.find(client, JOBSETS, spec.name, namespace=spec.namespace)
        if taken is not None:
            raise name_taken(spec)
        yield Finding("name", Tone.OK, f"{spec.name} is free in namespace {spec.namespace}")
    except PathwaysError as error:
        yield checks.failed("name", error)
    queue, priority = (spec.labels.get(each, "") for each in (names.QUEUE_LABEL, names.PRIORITY_LABEL))
    for finding in await checks.queue(client, spec.namespace, queue, priority):
        yield finding
    pools = await _pools(client)
    if isinstance(pools, Finding):
        yield pools
    else:
        yield await _slices(client, spec, pools)
        if (pool := spec.head.node_selector.get(names.NODEPOOL_LABEL)) is not None:
            yield await _head(client, spec, pool, pools)
        elif spec.head.node_selector:
            yield _head_anywhere(spec, pools)


async def _pools(client: Client) -> Mapping[str, _Pool] | Finding:
    """Return the node pools by name."""
    try:
        nodes = (await objects.list_(client, NODES)).items
    except PathwaysError as error:
        hint = error.hint
        if isinstance(error, ApiError) and error.status == 403:
            hint = permissions.advise(permissions.PLATFORM_ROLE, "")
        return Finding("nodes", Tone.WARN, f"Node pools cannot be checked: {error}", hint)
    pools: dict[str, _Pool] = {}
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        name = str(labels.get(names.NODEPOOL_LABEL) or "")
        pool = pools.setdefault(name, _Pool(name))
        pool.accelerator = str(labels.get(names.ACCELERATOR_LABEL) or "")
        pool.topology = str(labels.get(names.TOPOLOGY_LABEL) or "")
        pool.chips = str(((node.get("status") or {}).get("allocatable") or {}).get(names.TPU_RESOURCE) or "")
        pool.embedded = str((node.get("spec") or {}).get("providerID") or "").startswith("local:")
        if objects.true_condition(node, "Ready") and not (node.get("spec") or {}).get("unschedulable"):
            pool.nodes[str(node["metadata"]["name"])] = node
    return pools


def _misfit(node: Object, placement: PodPlacement, part: str) -> str:
    """Return why the pods of a part of a service cannot run on `node`, and the option for that; empty if they can."""
    labels = node["metadata"].get("labels") or {}
    for key, value in placement.node_selector.items():
        if labels.get(key) != value:
            return f"its label {key} is {labels[key]}, not {value}" if key in labels else f"it has no label {key}"
    # GKE has pods tolerate this one that request chips.
    taints = [each for each in (node.get("spec") or {}).get("taints") or () if each["key"] != names.TPU_RESOURCE]
    taint = node_fit.untolerated(placement.tolerations, taints, node_fit.KEEPS_AWAY)
    if taint is None:
        return ""
    written = f"{taint['key']}{'=' if taint.get('value') else ''}{taint.get('value', '')}:{taint['effect']}"
    return f"it has the taint {written} (--{part}-tolerations {written})"


def name_taken(spec: ServiceSpec) -> ServiceError:
    """Return the error for a service whose name is taken."""
    return ServiceError(
        f"There is a JobSet {spec.name} in namespace {spec.namespace} already.",
        hint=advice("See it: {service_show:{name}}. Choose another name, or delete it first.", name=spec.name),
    )


def _is_embedded(pools: Mapping[str, _Pool]) -> bool:
    return any(pool.embedded for pool in pools.values())


def _with_spare(spec: ServiceSpec) -> str:
    """Return how to give an embedded cluster nodes for a service, which gcloud cannot create there."""
    request = f"{spec.instance_type}={spec.slices}"
    return f"pathways-jupyter local up --spare {request}, or a larger number if it has so many spare ones already."


async def _slices(client: Client, spec: ServiceSpec, pools: Mapping[str, _Pool]) -> Finding:
    """Check for one whole node pool for each slice: JobSet places each slice in a pool of its own."""
    instance = spec.instance_type
    chips = str(instance.chips_per_host)
    fitting = {
        name: pool
        for name, pool in pools.items()
        if (pool.accelerator, pool.topology) == (instance.machine.accelerator, instance.topology)
        # An accelerator may be on machines of four and of eight chips.
        and (pool.chips or chips) == chips
    }
    misfits: dict[str, str] = {}
    usable: dict[str, list[str]] = {}
    for name, pool in fitting.items():
        usable[name] = []
        for node, object_ in pool.nodes.items():
            if problem := _misfit(object_, spec.workers, "worker"):
                misfits[name] = problem
            else:
                usable[name].append(node)
    complete = [name for name, nodes in usable.items() if len(nodes) >= instance.hosts]
    unfit = some([f"{name}: {why}" for name, why in misfits.items()]) if misfits else ""
    needed = f"{count(instance.hosts, 'node')} of {instance.machine.name} with topology {instance.topology}"
    more = (
        f"Create one for each slice: gcloud container node-pools create POOL --machine-type={instance.machine.name} "
        f"--tpu-topology={instance.topology} --num-nodes={instance.hosts}. "
        "If a pool starts from zero nodes, add --skip-checks."
    )
    if _is_embedded(pools):
        more = f"Add them to the embedded cluster: {_with_spare(spec)}"
    if not complete:
        others = [str(pool) for pool in pools.values() if pool.accelerator]
        there = f" TPU node pools there: {some(others)}." if others else " There are no TPU nodes."
        partly = f" Too few nodes are ready in {some(list(fitting))}." if fitting else there
        if unfit:
            partly = f" Its workers cannot run in {unfit}."
            more = f"Change --worker-node-selector or --worker-tolerations. {more}"
        message = f"No node pool has {needed}, which a slice of {instance} needs.{partly}"
        return Finding("node pools", Tone.FAIL, message, more)
    if len(complete) < spec.slices:
        there = f"{'there is' if len(complete) == 1 else 'there are'} {len(complete)}: {some(complete)}"
        message = f"{count(spec.slices, 'slice')} of {instance} need as many node pools, each with {needed}; {there}."
        message += f" Workers cannot run in {unfit}." if unfit else ""
        hint = f"Ask for --slices {len(complete)}, or for more nodes. {more}"
        return Finding("node pools", Tone.FAIL, message, hint)
    pool_of = {node: name for name in complete for node in usable[name]}
    taken = {
        pool_of[node]: str(pod["metadata"]["labels"][names.JOBSET_NAME_LABEL])
        for pod in await _running(client, spec, names.JOBSET_NAME_LABEL)
        if (node := str((pod.get("spec") or {}).get("nodeName") or "")) in pool_of
    }
    free = len(complete) - len(taken)
    if free < spec.slices:
        used = some([f"{name} by {service}" for name, service in taken.items()])
        message = f"Only {free} of {len(complete)} node pools for {instance} are free: {used}."
        hint = (
            "The other slices start when those services end, or when there are more node pools; with --no-wait this "
            "command does not wait for that."
        )
        if _is_embedded(pools):
            hint += f" Add them to the embedded cluster: {_with_spare(spec)}"
        return Finding("node pools", Tone.WARN, message, hint)
    return Finding("node pools", Tone.OK, f"{free} free for {instance}: {some(complete)}")


async def _head(client: Client, spec: ServiceSpec, chosen: str, pools: Mapping[str, _Pool]) -> Finding:
    """Check for a node for the head: Pathways' own tools make heads that JobSet places on a node of their own."""
    if chosen not in pools or not pools[chosen].nodes:
        others = [name for name, pool in pools.items() if name and not pool.accelerator and pool.nodes]
        hint = "Create one: gcloud container node-pools create POOL --machine-type=n2-standard-64 --num-nodes=1."
        if others:
            hint = f"Choose --head-pool {others[0]} (there: {some(others)})."
        elif _is_embedded(pools):
            hint = "The embedded cluster's nodes for it are not ready: kubectl get nodes shows them."
        return Finding("head", Tone.FAIL, f"There is no node pool {chosen} for the resource manager.", hint)
    problems = {name: _misfit(node, spec.head, "head") for name, node in pools[chosen].nodes.items()}
    if all(problems.values()):
        name, problem = next(iter(problems.items()))
        message = f"The resource manager cannot run on node {name} of node pool {chosen}: {problem}."
        return Finding("head", Tone.FAIL, message, "Change --head-pool, --head-node-selector or --head-tolerations.")
    nodes = {name for name, problem in problems.items() if not problem}
    # Also those of other namespaces, where they may be seen: exclusive placement is for the whole cluster.
    heads = await _running(client, spec, f"{names.REPLICATED_JOB_LABEL}={names.HEAD_JOB}")
    exclusive = [pod for pod in heads if EXCLUSIVE in (pod["metadata"].get("annotations") or {})]
    taken = {str((pod.get("spec") or {}).get("nodeName")) for pod in exclusive} & nodes
    if taken == nodes:
        more = (
            f"Add a node: gcloud container clusters resize CLUSTER --node-pool={chosen} --num-nodes={len(nodes) + 1}. "
            "If the pool grows by itself, add --skip-checks."
        )
        if _is_embedded(pools):
            more = (
                "Delete a service that is not needed: pathways-jupyter service delete NAME --local; or add nodes for "
                f"another one to the embedded cluster: {_with_spare(spec)}"
            )
        message = (
            f"Each of the {count(len(nodes), 'node')} of node pool {chosen} runs the head of another service or job, "
            f"whose annotation {EXCLUSIVE} keeps every other head away."
        )
        return Finding("head", Tone.FAIL, message, more)
    return Finding("head", Tone.OK, f"node pool {chosen} has {count(len(nodes - taken), 'free node')}")


def _head_anywhere(spec: ServiceSpec, pools: Mapping[str, _Pool]) -> Finding:
    """Check for a node for a head that selects its nodes by labels, in whatever node pool."""
    nodes = {name: node for pool in pools.values() for name, node in pool.nodes.items()}
    fitting = [name for name, node in nodes.items() if not _misfit(node, spec.head, "head")]
    if fitting:
        return Finding("head", Tone.OK, f"{count(len(fitting), 'node')} for it: {some(fitting)}")
    written = " ".join(f"{key}={value}" for key, value in spec.head.node_selector.items())
    return Finding(
        "head",
        Tone.FAIL,
        f"No node that is ready has the labels {written} and only taints that the resource manager tolerates.",
        "Change --head-node-selector or --head-tolerations. If GKE makes such nodes when they are needed, add "
        "--skip-checks.",
    )


async def _running(client: Client, spec: ServiceSpec, labels: str) -> list[Object]:
    """Return the pods that have not ended, of the whole cluster or, without that right, of the service's namespace."""
    for namespace in ("", spec.namespace):
        try:
            pods = (await objects.list_(client, PODS, namespace=namespace, labels=labels)).items
        except PathwaysError:
            continue
        return [pod for pod in pods if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}]
    return []
