"""Defaults, rules and immutable fields of Jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pathways_jupyter.local.apiserver import resources as kinds
from pathways_jupyter.local.apiserver.api_errors import invalid
from pathways_jupyter.local.apiserver.pod_strategy import default_pod_spec
from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.apiserver.rules import pod_spec_causes, unsupported

_JOB_MUTABLE_METADATA = {"annotations", "labels"}
_JOB_MUTABLE_SPEC = {"affinity", "nodeSelector", "schedulingGates", "tolerations"}


def prepare_job(job: Object) -> None:
    """Default and check a new Job, in place; its selector is made from its uid.

    Raises:
      StatusError: 422.
    """
    metadata, spec = job["metadata"], job.setdefault("spec", {})
    name, uid = metadata["name"], metadata["uid"]
    template = spec.setdefault("template", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    defaults: Mapping[str, Any] = {
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "manualSelector": False,
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    for key, value in defaults.items():
        if spec.get(key) is None:
            spec[key] = value
    if not spec["manualSelector"]:
        if spec.get("selector"):
            why = "Invalid value: `selector` not auto-generated"
            raise invalid(kinds.JOBS, name, [("spec.selector", why)])
        own = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels.update(own)
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        metadata.setdefault("labels", dict(labels))
    pod_spec = template.setdefault("spec", {})
    restart_policy = pod_spec.get("restartPolicy")
    default_pod_spec(pod_spec)
    causes = pod_spec_causes(pod_spec, "spec.template.spec")
    if restart_policy not in ("OnFailure", "Never"):
        causes.append(
            (
                "spec.template.spec.restartPolicy",
                f"Required value: valid values: {chr(34)}OnFailure{chr(34)}, {chr(34)}Never{chr(34)}"
                if restart_policy is None
                else unsupported(restart_policy, ("OnFailure", "Never")),
            )
        )
    causes += [
        (f"spec.{key}", f"Invalid value: {spec[key]}: must be greater than or equal to 0")
        for key in ("parallelism", "completions", "backoffLimit", "ttlSecondsAfterFinished", "activeDeadlineSeconds")
        if isinstance(spec.get(key), int) and spec[key] < 0
    ]
    if spec["completionMode"] not in ("NonIndexed", "Indexed"):
        causes.append(("spec.completionMode", unsupported(spec["completionMode"], ("NonIndexed", "Indexed"))))
    elif spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        causes.append(("spec.completions", "Required value: when completion mode is Indexed"))
    if causes:
        raise invalid(kinds.JOBS, name, causes)


def check_job_update(job: Object, old: Object) -> None:
    """Default an updated Job, in place, and check that it changes only what may change.

    Raises:
      StatusError: 422.
    """
    spec, before = job.setdefault("spec", {}), old["spec"]
    default_pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))
    changed = [key for key in ("selector", "completionMode", "manualSelector") if spec.get(key) != before.get(key)]
    # A Job that has not started may still be moved to other nodes: queueing systems do so while it is suspended.
    scheduling = bool(before.get("suspend")) and not (old.get("status") or {}).get("startTime")
    if _fixed_template(spec, scheduling) != _fixed_template(before, scheduling):
        changed.append("template")
    resized = spec.get("completions") != before.get("completions")
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if resized and not elastic:
        changed.append("completions")
    if changed:
        causes = [(f"spec.{key}", "Invalid value: field is immutable") for key in changed]
        raise invalid(kinds.JOBS, job["metadata"]["name"], causes)


def _fixed_template(spec: Object, scheduling: bool) -> Object:
    template: Object = spec["template"]
    if not scheduling:
        return template
    metadata = {key: each for key, each in (template.get("metadata") or {}).items() if key not in _JOB_MUTABLE_METADATA}
    return {"metadata": metadata, "spec": {k: v for k, v in template["spec"].items() if k not in _JOB_MUTABLE_SPEC}}
