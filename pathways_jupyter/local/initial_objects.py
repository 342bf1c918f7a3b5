"""Objects that a new cluster ships with: a Shared Pathways Service for each kind of slice, the operator, a queue."""

from __future__ import annotations

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ApiError
from pathways_jupyter.local.apiserver.definitions import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, PRIORITIES
from pathways_jupyter.local.apiserver.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CRDS,
    JOBSETS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    SERVICE_ACCOUNTS,
    Object,
    ResourceType,
)
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.controllers.node_pools import PROVISIONED_LABEL
from pathways_jupyter.local.controllers.nodes import CPU_POOL
from pathways_jupyter.local.controllers.reconciler import Key, Reconciler, itself
from pathways_jupyter.local.node import programs
from pathways_jupyter.local.settings import HOLLOW_ANNOTATION, ClusterSettings
from pathways_jupyter.service import names, networkpolicy, service_jobset
from pathways_jupyter.service.pathwaysjob import definition, installation

SYSTEM_NAMESPACE = installation.NAMESPACE
OPERATOR = installation.NAME


def ship(store: Store, settings: ClusterSettings, cluster: str) -> dict[str, int]:
    """Create the objects that the cluster of this name ships with; those that exist stay, services with more slices.

    Returns:
      The slices of each service, by its name.

    Raises:
      ConfigError: An instance type is not in the catalogue.
    """
    services = {}
    sidecar = f"{names.SIDECAR_REPOSITORY}/sidecar:{programs.tags('sidecar')[1]}" if settings.sidecar else ""
    for name, instance_type in settings.services.items():
        slices = settings.instances[instance_type]
        spec = service_jobset.ServiceSpec(
            tpu.parse_instance_type(instance_type),
            slices,
            programs.reference(names.SERVER_IMAGE),
            name=name,
            sidecar_image=sidecar,
            head=service_jobset.PodPlacement({names.NODEPOOL_LABEL: CPU_POOL}),
            labels={names.EMBEDDED_LABEL: cluster},
        )
        manifest = service_jobset.manifest(spec)
        _keep_off_nodes_of_jobs(manifest)
        if settings.hollow:
            for replicated in manifest["spec"]["replicatedJobs"]:
                metadata = replicated["template"]["spec"]["template"].setdefault("metadata", {})
                metadata.setdefault("annotations", {})[HOLLOW_ANNOTATION] = "true"
        present = store.find(JOBSETS, names.DEFAULT_NAMESPACE, spec.name)
        if present is None:
            store.create(JOBSETS, manifest)
        elif _replicas(present) != _replicas(manifest):
            # Past the rule of a real cluster that forbids it. The JobSet's controller makes the missing workers, and
            # the resource manager learns of them when they register. A service that keeps its size may be the user's.
            jobs = manifest["spec"]["replicatedJobs"]
            store.update(JOBSETS, {**present, "spec": {**present["spec"], "replicatedJobs": jobs}})
        services[spec.name] = slices
    _create(store, NETWORK_POLICIES, networkpolicy.for_proxies(names.DEFAULT_NAMESPACE))
    chips = sum(tpu.parse_instance_type(kind).chips * slices for kind, slices in settings.instances.items())
    _ship_queue(store, chips)
    # The objects with which a real cluster's operator is installed, with a pod instead of a Deployment.
    _create(store, CRDS, definition.definition())
    _create(store, NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
    kinds = (SERVICE_ACCOUNTS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
    for kind, obj in zip(kinds, installation.permissions(SYSTEM_NAMESPACE), strict=True):
        _create(store, kind, obj)
    _create(store, PODS, _operator_pod())
    return services


def _replicas(jobset: Object) -> dict[str, int]:
    """Return the number of Jobs of each name in a JobSet."""
    return {job["name"]: job.get("replicas", 1) for job in jobset["spec"]["replicatedJobs"]}


def _ship_queue(store: Store, chips: int) -> None:
    """Create a queue with a quota of so many chips, and more CPU and memory than jobs will request."""
    amounts = {names.TPU_RESOURCE: chips, "cpu": 1000, "memory": "10T"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
    group = {"coveredResources": list(amounts), "flavors": [{"name": "any-node", "resources": resources}]}
    preemption = {"withinClusterQueue": "LowerPriority"}
    spec = {"resourceGroups": [group], "namespaceSelector": {}, "preemption": preemption}
    _create(store, FLAVORS, {"metadata": {"name": "any-node"}, "spec": {}})
    _create(store, CLUSTER_QUEUES, {"metadata": {"name": "chips"}, "spec": spec})
    _create(store, LOCAL_QUEUES, {"metadata": {"name": "team"}, "spec": {"clusterQueue": "chips"}})
    _create(store, NAMESPACES, {"metadata": {"name": "kueue-system"}})
    # What it handles, where Kueue itself says so.
    configuration = {
        "controller_manager_config.yaml": "integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset]}"
    }
    metadata = {"name": "kueue-manager-config", "namespace": "kueue-system"}
    _create(store, CONFIG_MAPS, {"metadata": metadata, "data": configuration})
    for name, value in (("low", -10), ("high", 10)):
        _create(store, PRIORITIES, {"metadata": {"name": name}, "value": value})


def _operator_pod() -> Object:
    pod: Object = installation.pod(programs.reference(programs.OPERATOR_IMAGE))
    pod["metadata"] |= {"name": OPERATOR, "namespace": SYSTEM_NAMESPACE}
    pod["spec"]["nodeSelector"] = {names.NODEPOOL_LABEL: CPU_POOL}
    return pod


class OperatorController(Reconciler):
    """Replaces the operator's pod when it was deleted, alone or with its node, as its Deployment would."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, {PODS: itself})

    def reconcile(self, key: Key) -> None:
        """Create the pod if it is the one that is gone."""
        if key == (SYSTEM_NAMESPACE, OPERATOR) and self._store.find(PODS, *key) is None:
            self._store.create(PODS, _operator_pod())


def _create(store: Store, resource: ResourceType, obj: Object) -> None:
    try:
        store.create(resource, obj)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def _keep_off_nodes_of_jobs(manifest: Object) -> None:
    """Let a service's workers wait for their own nodes: on an idle one of a job, a slice held down would be up."""
    workers = next(each for each in manifest["spec"]["replicatedJobs"] if each["name"] == names.WORKER_JOB)
    term = {"matchExpressions": [{"key": PROVISIONED_LABEL, "operator": "DoesNotExist"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    workers["template"]["spec"]["template"]["spec"].setdefault("affinity", {})["nodeAffinity"] = required
