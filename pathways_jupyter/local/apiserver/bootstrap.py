"""Objects of a new store: the namespaces and the definitions of JobSet and Kueue."""

from __future__ import annotations

from pathways_jupyter.local.apiserver import kueue_definitions
from pathways_jupyter.local.apiserver.custom import definition
from pathways_jupyter.local.apiserver.resources import JOBSETS, Object
from pathways_jupyter.service import builtin_kinds

_ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_COUNT: Object = {"type": "integer", "format": "int32", "minimum": 0}
_STRING: Object = {"type": "string"}
_IMMUTABLE: Object = {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}]}


def _object(required: tuple[str, ...] = (), **properties: Object) -> Object:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _list(items: Object) -> Object:
    return {"type": "array", "items": items}


def _choice(*values: str, default: str = "") -> Object:
    return {"type": "string", "enum": list(values), **({"default": default} if default else {})}


_CONDITION = _object(
    ("type", "status"),
    type=_STRING,
    status=_STRING,
    reason=_STRING,
    message=_STRING,
    lastTransitionTime=_STRING,
    observedGeneration={"type": "integer"},
)
_JOBSET_SPEC = _object(
    replicatedJobs={
        **_list(
            _object(
                ("name", "template"),
                name=_STRING,
                groupName=_STRING,
                replicas={**_COUNT, "default": 1},
                template=_object(metadata=builtin_kinds.schema("ObjectMeta"), spec=builtin_kinds.schema("JobSpec")),
                dependsOn=_list(_ANYTHING),
            )
        ),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    network=_object(
        enableDNSHostnames={"type": "boolean"}, subdomain=_STRING, publishNotReadyAddresses={"type": "boolean"}
    )
    | _IMMUTABLE,
    successPolicy=_object(("operator",), operator=_choice("All", "Any"), targetReplicatedJobs=_list(_STRING))
    | _IMMUTABLE,
    failurePolicy=_object(
        maxRestarts={**_COUNT, "default": 0},
        restartStrategy=_choice("Recreate", "BlockingRecreate", default="Recreate"),
        rules={
            **_list(
                _object(
                    ("name", "action"),
                    name={
                        **_STRING,
                        "minLength": 1,
                        "maxLength": 128,
                        "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    },
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
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    | _IMMUTABLE,
    startupPolicy=_object(("startupPolicyOrder",), startupPolicyOrder=_choice("AnyOrder", "InOrder")) | _IMMUTABLE,
    coordinator=_object(
        ("replicatedJob",), replicatedJob=_STRING, jobIndex={"type": "integer"}, podIndex={"type": "integer"}
    ),
    suspend={"type": "boolean"},
    managedBy=_STRING,
    ttlSecondsAfterFinished=_COUNT,
)
_JOBSET_STATUS = _object(
    conditions=_list(_CONDITION),
    restarts=_COUNT,
    restartsCountTowardsMax=_COUNT,
    terminalState=_STRING,
    replicatedJobsStatus=_list(_ANYTHING),
)

_JOBSET_COLUMNS = (
    {"name": "TerminalState", "type": "string", "jsonPath": ".status.terminalState"},
    {"name": "Restarts", "type": "string", "jsonPath": ".status.restarts"},
    {"name": "Completed", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Completed")].status'},
    {"name": "Suspended", "type": "string", "jsonPath": ".spec.suspend"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)
JOBSET_DEFINITION = definition(JOBSETS, _JOBSET_COLUMNS, spec=_JOBSET_SPEC, status=_JOBSET_STATUS)
"""The custom resource definition of JobSet, with its published fields."""

FIRST_OBJECTS: tuple[tuple[str, Object], ...] = (
    *(("v1", {"kind": "Namespace", "metadata": {"name": name}}) for name in ("default", "kube-system", "kube-public")),
    *(("apiextensions.k8s.io/v1", each) for each in (JOBSET_DEFINITION, *kueue_definitions.DEFINITIONS)),
)
