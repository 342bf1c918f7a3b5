"""The definitions of Kueue's kinds, for the part that :mod:`pathways_jupyter.local.controllers.kueue` evaluates.

A field of Kueue that is not evaluated is refused: a queue that ignored it would admit other jobs than a real one.
Both versions that Kueue serves are served: those fields are the same in them, but for the class of a Workload's
priority, of which each has its own.
"""

from __future__ import annotations

from pathways_jupyter.local.apiserver.custom import definition
from pathways_jupyter.local.apiserver.resources import Object, ResourceType

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
_DEPRECATED = ("v1beta1",)


def _type(kind: str, plural: str, *, namespaced: bool = False, has_status: bool = True) -> ResourceType:
    return ResourceType(GROUP, VERSION, kind, plural, namespaced, has_status=has_status, custom=True)


LOCAL_QUEUES = _type("LocalQueue", "localqueues", namespaced=True)
CLUSTER_QUEUES = _type("ClusterQueue", "clusterqueues")
FLAVORS = _type("ResourceFlavor", "resourceflavors", has_status=False)
PRIORITIES = _type("WorkloadPriorityClass", "workloadpriorityclasses", has_status=False)
WORKLOADS = _type("Workload", "workloads", namespaced=True)

_STRING: Object = {"type": "string"}
_ANY: Object = {"x-kubernetes-preserve-unknown-fields": True}


def _object(unserved: str = "", required: str = "", **properties: Object) -> Object:
    """Return the schema of an object; `unserved` are fields that Kueue has, and that are refused here."""
    refused = unserved.split()
    why = "the embedded cluster does not evaluate"
    return {
        "type": "object",
        "properties": {**properties, **dict.fromkeys(refused, _ANY)},
        "required": required.split(),
        "x-kubernetes-validations": [{"rule": f"!has(self.{each})", "message": f"{why} {each}"} for each in refused],
    }


def _list(items: Object, most: int = 64) -> Object:
    return {"type": "array", "items": items, "maxItems": most}


_QUOTA = _object(
    "borrowingLimit lendingLimit", "name nominalQuota", name=_STRING, nominalQuota={"x-kubernetes-int-or-string": True}
)
_FLAVOR = _object("", "name resources", name=_STRING, resources=_list(_QUOTA))
_GROUP = _object("", "flavors", coveredResources=_list(_STRING), flavors=_list(_FLAVOR, most=1))
_CLUSTER_QUEUE = _object(
    "cohort cohortName stopPolicy fairSharing flavorFungibility admissionChecks admissionChecksStrategy admissionScope",
    "resourceGroups namespaceSelector",
    resourceGroups=_list(_GROUP, most=1),
    # Every namespace: without a selector Kueue admits from none.
    namespaceSelector={"type": "object", "maxProperties": 0, **_ANY},
    queueingStrategy={"enum": ["BestEffortFIFO"]},
    preemption=_object(
        "borrowWithinCohort",
        reclaimWithinCohort={"enum": ["Never"]},
        withinClusterQueue={"enum": ["Never", "LowerPriority"]},
    ),
)
_WORKLOAD = _object(
    "maximumExecutionTimeSeconds",
    queueName=_STRING,
    podSets=_list(_ANY),
    priority={"type": "integer"},
    priorityClassName=_STRING,
    priorityClassSource=_STRING,
    priorityClassRef={"type": "object", **_ANY},
    active={"type": "boolean", "default": True},
)
_STATUS: Object = {"type": "object", **_ANY}

DEFINITIONS = (
    definition(FLAVORS, deprecated=_DEPRECATED, spec=_object("nodeLabels nodeTaints tolerations topologyName")),
    definition(CLUSTER_QUEUES, deprecated=_DEPRECATED, spec=_CLUSTER_QUEUE, status=_STATUS),
    definition(
        LOCAL_QUEUES,
        deprecated=_DEPRECATED,
        spec=_object("stopPolicy fairSharing", "clusterQueue", clusterQueue=_STRING),
        status=_STATUS,
    ),
    definition(PRIORITIES, deprecated=_DEPRECATED, value={"type": "integer"}, description=_STRING),
    definition(WORKLOADS, deprecated=_DEPRECATED, spec=_WORKLOAD, status=_STATUS),
)
