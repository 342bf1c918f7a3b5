"""Definitions of the custom resources of every embedded cluster, JobSet's and Kueue's.

Of JobSet the fields are served that kubernetes-sigs/jobset publishes (``config/components/crd``, August 2026), but for
claims of volumes and ``dependsOn``. What its webhook refuses is in the schema here as far as a schema can state it,
with its feature gates as they are by default; the rest is in :mod:`.jobset_webhook`.

Of Kueue the part is served that :mod:`~pathways_jupyter.local.controllers.kueue` evaluates. Another field is refused: a
queue that ignored it would admit other jobs than a real one. Both versions that Kueue serves are served: those fields
are the same in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pathways_jupyter.local.apiserver.custom import Schema
from pathways_jupyter.local.apiserver.resources import JOBSETS, Object, ResourceType
from pathways_jupyter.service import builtin_kinds

_ANY: Object = {"x-kubernetes-preserve-unknown-fields": True}
_ANY_OBJECT: Object = {"type": "object", **_ANY}
_COUNT: Object = {"type": "integer", "format": "int32", "minimum": 0}
_STRING: Object = {"type": "string"}
_LABEL: Object = {**_STRING, "maxLength": 63, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}
_IMMUTABLE: Object = {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}]}


def _object(required: str = "", *, unserved: str = "", **properties: Schema) -> Object:
    """Return the schema of an object; `unserved` are fields that the kind has, and that are refused here."""
    refused, why = unserved.split(), "the embedded cluster does not evaluate"
    rules = [{"rule": f"!has(self.{each})", "message": f"{why} {each}"} for each in refused]
    return {
        "type": "object",
        "properties": {**properties, **dict.fromkeys(refused, _ANY)},
        **({"required": required.split()} if required else {}),
        **({"x-kubernetes-validations": rules} if rules else {}),
    }


def _list(items: Object, **more: object) -> Object:
    return {"type": "array", "items": items, **more}


def _choice(*values: str, default: str = "") -> Object:
    return {"type": "string", "enum": list(values), **({"default": default} if default else {})}


def _definition(
    resource: ResourceType,
    columns: Sequence[Object] = (),
    *,
    required: str = "",
    deprecated: Sequence[str] = (),
    **properties: Schema,
) -> Object:
    """Return the ``CustomResourceDefinition`` of a type whose objects have these properties beside their metadata.

    Args:
      required: The properties that every object must have.
      deprecated: Earlier versions of the type, which are served too.
    """
    common: Object = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}} if resource.has_status else {},
        "additionalPrinterColumns": list(columns),
        "schema": {"openAPIV3Schema": _object(required, unserved="", **common, **properties)},
    }
    kind, plural = resource.kind, resource.plural
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.qualified},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": resource.singular},
            "versions": [
                version,
                *({**version, "name": each, "storage": False, "deprecated": True} for each in deprecated),
            ],
        },
    }


# JobSet.

_RULE_NAME: Object = {**_STRING, "maxLength": 128, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"}
_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_MANAGER: Object = {**_STRING, "maxLength": 63, "pattern": rf"^{_DOMAIN}/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$"}
_JOBSET_SPEC = _object(
    unserved="volumeClaimPolicies",
    replicatedJobs={
        **_list(
            _object(
                "name template",
                unserved="dependsOn",
                name=_STRING,
                groupName={**_LABEL, "default": "default"},
                replicas={**_COUNT, "default": 1},
                template=_object(metadata=builtin_kinds.schema("ObjectMeta"), spec=builtin_kinds.schema("JobSpec")),
            )
        ),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    network=_object(
        enableDNSHostnames={"type": "boolean"},
        # An empty one is none.
        subdomain={**_LABEL, "pattern": f"^$|{_LABEL['pattern']}"},
        publishNotReadyAddresses={"type": "boolean"},
    )
    | _IMMUTABLE,
    successPolicy=_object("operator", operator=_choice("All", "Any"), targetReplicatedJobs=_list(_STRING)) | _IMMUTABLE,
    failurePolicy=_object(
        maxRestarts={"type": "integer", "format": "int32"},
        restartStrategy=_choice("Recreate", "BlockingRecreate", default="Recreate"),
        rules={
            **_list(
                _object(
                    "action name",
                    name=_RULE_NAME,
                    action=_choice("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"),
                    targetReplicatedJobs=_list(_STRING),
                    onJobFailureReasons=_list(
                        _choice(
                            "BackoffLimitExceeded",
                            "DeadlineExceeded",
                            "FailedIndexes",
                            "MaxFailedIndexesExceeded",
                            "PodFailurePolicy",
                        )
                    ),
                    onJobFailureMessagePatterns=_list(_STRING),
                )
            ),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    | _IMMUTABLE,
    startupPolicy=_object("startupPolicyOrder", startupPolicyOrder=_choice("AnyOrder", "InOrder")) | _IMMUTABLE,
    coordinator=_object(
        "replicatedJob", replicatedJob=_STRING, jobIndex={"type": "integer"}, podIndex={"type": "integer"}
    ),
    suspend={"type": "boolean"},
    managedBy=_MANAGER,
    ttlSecondsAfterFinished=_COUNT,
)

_JOBSET_COLUMNS = (
    {"name": "TerminalState", "type": "string", "jsonPath": ".status.terminalState"},
    {"name": "Restarts", "type": "string", "jsonPath": ".status.restarts"},
    {"name": "Completed", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Completed")].status'},
    {"name": "Suspended", "type": "string", "jsonPath": ".spec.suspend"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)

# Kueue.


def _kueue(kind: str, plural: str, *, namespaced: bool = False, has_status: bool = True) -> ResourceType:
    return ResourceType("kueue.x-k8s.io", "v1beta2", kind, plural, namespaced, has_status=has_status, custom=True)


LOCAL_QUEUES = _kueue("LocalQueue", "localqueues", namespaced=True)
CLUSTER_QUEUES = _kueue("ClusterQueue", "clusterqueues")
FLAVORS = _kueue("ResourceFlavor", "resourceflavors", has_status=False)
PRIORITIES = _kueue("WorkloadPriorityClass", "workloadpriorityclasses", has_status=False)
WORKLOADS = _kueue("Workload", "workloads", namespaced=True)

_QUOTA = _object(
    "name nominalQuota",
    unserved="borrowingLimit lendingLimit",
    name=_STRING,
    nominalQuota=builtin_kinds.schema("quantity"),
)
_FLAVOR = _object("name resources", name=_STRING, resources=_list(_QUOTA))
_RESOURCE_GROUP = _object("flavors", coveredResources=_list(_STRING), flavors=_list(_FLAVOR, maxItems=1))
_CLUSTER_QUEUE = _object(
    "resourceGroups namespaceSelector",
    unserved="cohort cohortName stopPolicy fairSharing flavorFungibility admissionChecks admissionChecksStrategy"
    " admissionScope",
    resourceGroups=_list(_RESOURCE_GROUP, maxItems=1),
    # Every namespace: without a selector Kueue admits from none.
    namespaceSelector={"type": "object", "maxProperties": 0, **_ANY},
    queueingStrategy={"enum": ["BestEffortFIFO"]},
    preemption=_object(
        unserved="borrowWithinCohort",
        reclaimWithinCohort={"enum": ["Never"]},
        withinClusterQueue={"enum": ["Never", "LowerPriority"]},
    ),
)
_WORKLOAD = _object(
    unserved="maximumExecutionTimeSeconds",
    queueName=_STRING,
    podSets=_list(_ANY),
    priority={"type": "integer"},
    active={"type": "boolean", "default": True},
)
_in_both = partial(_definition, deprecated=("v1beta1",))
DEFINITIONS = (
    _definition(JOBSETS, _JOBSET_COLUMNS, spec=_JOBSET_SPEC, status=_ANY_OBJECT),
    _in_both(FLAVORS, spec=_object(unserved="nodeLabels nodeTaints tolerations topologyName")),
    # A real queue may lack its spec. Here it would keep the controller from deciding about all the others.
    _in_both(CLUSTER_QUEUES, required="spec", spec=_CLUSTER_QUEUE, status=_ANY_OBJECT),
    _in_both(
        LOCAL_QUEUES,
        required="spec",
        spec=_object("clusterQueue", unserved="stopPolicy fairSharing", clusterQueue=_STRING),
        status=_ANY_OBJECT,
    ),
    _in_both(PRIORITIES, required="value", value={"type": "integer"}, description=_STRING),
    _in_both(WORKLOADS, required="spec", spec=_WORKLOAD, status=_ANY_OBJECT),
)
