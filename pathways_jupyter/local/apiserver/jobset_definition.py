"""JobSet's definition, and the rules of its webhook that callers meet beyond the definition's schema.

The length of names and the targets of policies: manifests of services, which users write. Changes: ``kubectl apply`` of
another manifest; Kueue, which may change where the pods of a suspended one go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pathways_jupyter.local.apiserver.api_errors import invalid
from pathways_jupyter.local.apiserver.custom import definition, fill_defaults
from pathways_jupyter.local.apiserver.patch import clone
from pathways_jupyter.local.apiserver.resources import JOBSETS, Object, ResourceType
from pathways_jupyter.local.apiserver.workload_strategy import Cause
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
DEFINITION = definition(JOBSETS, _JOBSET_COLUMNS, spec=_JOBSET_SPEC, status=_JOBSET_STATUS)
"""The custom resource definition of JobSet, with its published fields."""

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST = 63
_POD_SUFFIX = "-abcde"
_CHANGES_WHILE_SUSPENDED = ("annotations", "labels"), ("nodeSelector", "tolerations", "schedulingGates")
"""Fields of the metadata and of the spec of a pod template that queues set."""


def check(resource: ResourceType, jobset: Object, old: Object | None) -> None:
    """Check a JobSet that a client creates or updates.

    Args:
      resource: Its type, with its schema.
      old: The one that it replaces.

    Raises:
      StatusError: 422.
    """
    new = fill_defaults(resource.schema, {"spec": jobset.get("spec") or {}})["spec"]
    name = jobset["metadata"].get("name") or jobset["metadata"].get("generateName", "") + "abcde"
    causes = list(_new(name, new) if old is None else _changes(new, old["spec"]))
    if causes:
        raise invalid(JOBSETS, name, causes)


def _new(name: str, spec: Object) -> Iterator[Cause]:
    replicated = spec.get("replicatedJobs") or ()
    for index, each in enumerate(replicated):
        yield from _generated_names(name, each, f"spec.replicatedJobs[{index}].name")
    job_names = {each["name"] for each in replicated}
    policies = [("spec.successPolicy", spec.get("successPolicy") or {})]
    rules = (spec.get("failurePolicy") or {}).get("rules") or ()
    policies += [(f"spec.failurePolicy.rules[{index}]", each) for index, each in enumerate(rules)]
    for path, policy in policies:
        for target in policy.get("targetReplicatedJobs") or ():
            if target not in job_names:
                why = f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs"
                yield f"{path}.targetReplicatedJobs", f"Invalid value: {why}"


def _generated_names(name: str, replicated: Object, path: str) -> Iterator[Cause]:
    job = replicated["template"].get("spec") or {}
    last = f"{name}-{replicated['name']}-{max(replicated['replicas'] - 1, 0)}"
    yield from _label(last, path, "job")
    if job.get("completionMode") in (None, "Indexed") and isinstance(job.get("completions"), int):
        yield from _label(f"{last}-{max(job['completions'] - 1, 0)}{_POD_SUFFIX}", path, "pod")


def _label(text: str, path: str, what: str) -> Iterator[Cause]:
    if len(text) > _LONGEST:
        why = f"JobSet name is too long, {what} names generated for this JobSet will exceed 63 characters"
        yield path, f'Invalid value: "{text}": {why}'
    elif not _LABEL.fullmatch(text):
        why = 'a DNS-1035 label must consist of lower case alphanumeric characters or "-"'
        yield path, f'Invalid value: "{text}": {why}'


def _changes(spec: Object, before: Object) -> Iterator[Cause]:
    """Return changes of what cannot be changed: all that the schema's own rules do not name."""
    suspended = bool(spec.get("suspend") or before.get("suspend"))
    if _fixed(spec, suspended) != _fixed(before, suspended):
        yield "spec.replicatedJobs", "Invalid value: field is immutable"


def _fixed(spec: Object, suspended: bool) -> Any:
    jobs = clone(spec.get("replicatedJobs") or [])
    if suspended:
        for each in jobs:
            pod = (each["template"].get("spec") or {}).get("template") or {}
            for part, fields in zip(("metadata", "spec"), _CHANGES_WHILE_SUSPENDED, strict=True):
                pod[part] = {key: value for key, value in (pod.get(part) or {}).items() if key not in fields}
    return jobs
