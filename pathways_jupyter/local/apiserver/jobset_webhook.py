"""Defaults of JobSet's webhooks, and those of their checks that a schema cannot state.

With the schema in :mod:`.definitions` it is all that kubernetes-sigs/jobset has in ``pkg/webhooks/jobset_webhook.go``
(at 08dfbdf, August 2026). Volume claims and ``dependsOn`` are not served; the schema refuses them. What it does to pods
is the scheduler's here: :mod:`~pathways_jupyter.local.controllers.fitting`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pathways_jupyter.local.apiserver.api_errors import invalid
from pathways_jupyter.local.apiserver.custom import fill_defaults
from pathways_jupyter.local.apiserver.patch import clone
from pathways_jupyter.local.apiserver.resources import JOBSETS, Object, ResourceType
from pathways_jupyter.local.apiserver.workload_strategy import Cause

_LONGEST = 63
_LARGEST = (1 << 31) - 1
_POD_SUFFIX = "-abcde"
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_CHANGES_WHILE_SUSPENDED = ("annotations", "labels"), ("nodeSelector", "tolerations", "schedulingGates")
"""Fields of the metadata and of the spec of a pod template that queues set."""


def default_jobset(jobset: Object) -> None:
    """Set what the mutating webhook sets in a new JobSet, in place.

    It comes before the schema's checks, so that the fields may have any type.
    """
    spec = jobset.get("spec")
    if not isinstance(spec, dict):
        return
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    for each in _dicts(spec.get("replicatedJobs")):
        if isinstance(job := _part(each.get("template"), "spec"), dict):
            job.setdefault("completionMode", "Indexed")
            if isinstance(pod := _part(_part(job, "template"), "spec"), dict) and not pod.get("restartPolicy"):
                pod["restartPolicy"] = "OnFailure"
    if isinstance(network := _part(spec, "network"), dict):
        network.setdefault("enableDNSHostnames", True)
        network.setdefault("publishNotReadyAddresses", True)
    if isinstance(policy := spec.get("failurePolicy"), dict):
        for index, rule in enumerate(policy.get("rules") or ()):
            if isinstance(rule, dict) and not rule.get("name"):
                rule["name"] = f"failurePolicyRule{index}"


def _part(parent: Any, key: str) -> Any:
    """Return a part of an object, which is made if there is none; None without the object."""
    if not isinstance(parent, dict):
        return None
    if parent.get(key) is None:
        parent[key] = {}
    return parent[key]


def _dicts(items: Any) -> list[Object]:
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []


def check_jobset(resource: ResourceType, jobset: Object, old: Object | None) -> None:
    """Check a JobSet that a client creates or updates, as the validating webhook does.

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
    replicated: list[Object] = spec.get("replicatedJobs") or []
    for index, each in enumerate(replicated):
        yield from _replicated(name, each, f"spec.replicatedJobs[{index}]")
    known = {each["name"] for each in replicated}
    yield from _unknown_targets(spec.get("successPolicy") or {}, "spec.successPolicy", known)
    for index, rule in enumerate((spec.get("failurePolicy") or {}).get("rules") or ()):
        yield from _unknown_targets(rule, f"spec.failurePolicy.rules[{index}]", known)
    if coordinator := spec.get("coordinator"):
        yield from _coordinator(name, spec, coordinator)


def _replicated(name: str, each: Object, path: str) -> Iterator[Cause]:
    job = each["template"].get("spec") or {}
    if each["replicas"] * job.get("parallelism", 1) > _LARGEST:
        why = f"the product of replicas and parallelism must not exceed {_LARGEST} for replicatedJob '{each['name']}'"
        yield f"{path}.replicas", f"Invalid value: {why}"
    what = "JobSet name is too long, {} names generated for this JobSet will exceed 63 characters"
    last = f"{name}-{each['name']}-{each['replicas'] - 1}"
    yield from _dns_label(last, f"{path}.name", what.format("job"))
    if job.get("completionMode") == "Indexed" and "completions" in job:
        pod = f"{last}-{job['completions'] - 1}{_POD_SUFFIX}"
        yield from _dns_label(pod, f"{path}.name", what.format("pod"))


def _dns_label(text: str, path: str, too_long: str) -> Iterator[Cause]:
    """Yield why `text` is no name of RFC 1035."""
    if len(text) > _LONGEST:
        yield path, f'Invalid value: "{text}": {too_long}'
    if not _LABEL.fullmatch(text):
        why = 'a DNS-1035 label must consist of lower case alphanumeric characters or "-"'
        yield path, f'Invalid value: "{text}": {why}'


def _unknown_targets(policy: Object, path: str, known: set[str]) -> Iterator[Cause]:
    for target in policy.get("targetReplicatedJobs") or ():
        if target not in known:
            why = f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs"
            yield f"{path}.targetReplicatedJobs", f"Invalid value: {why}"


def _coordinator(name: str, spec: Object, coordinator: Object) -> Iterator[Cause]:
    where, index, pod = coordinator["replicatedJob"], coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
    replicated = next((each for each in spec.get("replicatedJobs") or () if each["name"] == where), None)
    job = ((replicated or {}).get("template") or {}).get("spec") or {}
    why = ""
    if replicated is None:
        why = f"coordinator replicatedJob {where} does not exist"
    elif not 0 <= index < replicated["replicas"]:
        why = f"coordinator job index {index} is invalid for replicatedJob {where}"
    elif job.get("completionMode") != "Indexed" or "completions" not in job:
        why = "job for coordinator pod must be indexed completion mode, and completions number must be set"
    elif not 0 <= pod < job["completions"]:
        why = f"coordinator pod index {pod} is invalid for replicatedJob {where} job index {index}"
    if why:
        yield "spec.coordinator", f"Invalid value: {why}"
    subdomain = (spec.get("network") or {}).get("subdomain") or name
    label = f"{name}-{where}-{index}-{pod}.{subdomain}"
    if len(label) > _LONGEST or not _LABEL_VALUE.fullmatch(label):
        why = f'spec will lead to invalid label value "{label}" for coordinator label "jobset.sigs.k8s.io/coordinator"'
        yield "spec.coordinator", f"Invalid value: {why} (long JobSet / ReplicatedJob / SubDomain name?)"


def _changes(spec: Object, before: Object) -> Iterator[Cause]:
    """Return changes of what cannot be changed: all that the schema's own rules do not name."""
    suspended = bool(spec.get("suspend") or before.get("suspend"))
    if _fixed(spec, suspended) != _fixed(before, suspended):
        yield "spec.replicatedJobs", "Invalid value: field is immutable"
    if spec.get("managedBy") != before.get("managedBy"):
        yield "spec.managedBy", "Invalid value: field is immutable"


def _fixed(spec: Object, suspended: bool) -> Any:
    jobs = clone(spec.get("replicatedJobs") or [])
    if suspended:
        for each in jobs:
            pod = (each["template"].get("spec") or {}).get("template") or {}
            for part, fields in zip(("metadata", "spec"), _CHANGES_WHILE_SUSPENDED, strict=True):
                pod[part] = {key: value for key, value in (pod.get(part) or {}).items() if key not in fields}
    return jobs
