"""Defaults and immutable fields of each kind, applied when objects are created or updated."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from typing import Any

from pathways_jupyter.local.apiserver import resources as kinds
from pathways_jupyter.local.apiserver.api_errors import invalid
from pathways_jupyter.local.apiserver.cel import rule_causes
from pathways_jupyter.local.apiserver.custom import fill_defaults, schema_causes
from pathways_jupyter.local.apiserver.resources import Object, ResourceType
from pathways_jupyter.local.apiserver.rules import (
    event_causes,
    lease_causes,
    pod_spec_causes,
    service_causes,
    unsupported,
)
from pathways_jupyter.service.images import Image

_BESIDE_SCHEMA = ("apiVersion", "kind", "metadata", "status")
_JOB_MUTABLE_METADATA = {"annotations", "labels"}
_JOB_MUTABLE_SPEC = {"affinity", "nodeSelector", "schedulingGates", "tolerations"}
_MUTABLE_POD_FIELDS = {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"}


def now() -> str:
    """The current time as objects carry it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def prepare_create(resource: ResourceType, obj: Object) -> None:
    """Default a new object of this type, in place. It has its uid already.

    Raises:
      StatusError: 422, the object breaks a rule of its kind.
    """
    if resource.has_status:
        obj.pop("status", None)
    if resource.schema:
        _default_custom(resource, obj)
        if causes := list(rule_causes(resource.schema, obj)):
            raise invalid(resource, obj["metadata"].get("name", ""), causes)
    prepare = _CREATE.get(resource.qualified)
    if prepare is not None:
        prepare(obj)
    if resource.has_status and not resource.custom:
        obj.setdefault("status", {})


def prepare_update(resource: ResourceType, obj: Object, old: Object) -> None:
    """Default and validate an updated object, in place.

    Raises:
      StatusError: 422, it changes what must not change.
    """
    check = _UPDATE.get(resource.qualified)
    if check is not None:
        check(obj, old)
    if resource.schema:
        _default_custom(resource, obj)
        if causes := list(rule_causes(resource.schema, obj, old)):
            raise invalid(resource, obj["metadata"]["name"], causes)


def _default_custom(resource: ResourceType, obj: Object) -> None:
    state = {key: value for key, value in obj.items() if key not in _BESIDE_SCHEMA}
    obj.update(fill_defaults(resource.schema, state))


def _pod(pod: Object) -> None:
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    _default_pod(spec)
    _admit_pod(spec)
    causes = pod_spec_causes(spec, "spec")
    if causes:
        raise invalid(kinds.PODS, pod["metadata"]["name"], causes)
    pod["status"] = {"phase": "Pending", "qosClass": _qos(spec)}


def default_pod_spec(spec: Object) -> None:
    """Give a pod's spec, or a template's, the defaults of the real API."""
    defaults: Mapping[str, Any] = {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
    }
    for key, value in defaults.items():
        if spec.get(key) is None:
            spec[key] = value
    spec.setdefault("securityContext", {})
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        if not isinstance(container, dict):
            continue
        image = Image.parse(str(container.get("image", "")))
        moves = not image.digest and image.tag in ("", "latest")
        container.setdefault("imagePullPolicy", "Always" if moves else "IfNotPresent")
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _default_pod(spec: Object) -> None:
    """Give a pod the defaults that a template does not get."""
    spec.setdefault("enableServiceLinks", True)
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") if isinstance(container, dict) else None
        if resources and resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _admit_pod(spec: Object) -> None:
    """Apply a real cluster's admission to a new pod, as far as clients can see it."""
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec["serviceAccountName"] = spec["serviceAccount"] = spec.get("serviceAccountName") or "default"


def _qos(spec: Object) -> str:
    limits = [each.get("resources", {}) for each in spec.get("containers", ())]
    if not any(each.get("limits") or each.get("requests") for each in limits):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= set(each.get("limits") or ())
        and (each.get("requests") or each["limits"]).items()
        >= {k: each["limits"][k] for k in ("cpu", "memory")}.items()
        for each in limits
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _pod_update(pod: Object, old: Object) -> None:
    default_pod_spec(pod.setdefault("spec", {}))
    _default_pod(pod["spec"])
    new_spec, old_spec = _fixed_part(pod["spec"]), _fixed_part(old["spec"])
    if new_spec != old_spec:
        raise invalid(
            kinds.PODS,
            pod["metadata"]["name"],
            [("spec", "Forbidden: pod updates may not change fields other than images, deadlines and tolerations")],
        )


def _fixed_part(spec: Object) -> Object:
    fixed = {key: value for key, value in spec.items() if key not in _MUTABLE_POD_FIELDS}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [
                {key: value for key, value in each.items() if key not in ("image", "resources")}
                for each in fixed[field]
            ]
    return fixed


def _job(job: Object) -> None:
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


def _job_update(job: Object, old: Object) -> None:
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


def _namespace(namespace: Object) -> None:
    namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = namespace["metadata"]["name"]
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _service(service: Object) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if causes := service_causes(service):
        raise invalid(kinds.SERVICES, service["metadata"]["name"], causes)
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if spec["type"] != "ExternalName":
        # Receives no traffic: pods of the embedded cluster resolve each other's names to pod addresses.
        spec.setdefault("clusterIP", _address(service["metadata"]["uid"]))
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    service["status"] = {"loadBalancer": {}}


def _address(uid: str) -> str:
    """An address in the usual range of Services, the same for the same Service."""
    number = int(uid.replace("-", "")[:4], 16)
    return f"10.96.{number >> 8}.{max(number & 0xFF, 1)}"


def _lease(lease: Object) -> None:
    if causes := lease_causes(lease):
        raise invalid(kinds.LEASES, lease["metadata"]["name"], causes)


def _event(event: Object) -> None:
    if causes := event_causes(event):
        raise invalid(kinds.EVENTS, event["metadata"]["name"], causes)


def _secret(secret: Object) -> None:
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None) or {}
    for key, value in plain.items():
        secret.setdefault("data", {})[key] = base64.b64encode(str(value).encode()).decode()


def _claim(claim: Object) -> None:
    """Bind a claim at once: its volume is a directory, which is made when a pod mounts it."""
    spec = claim.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    wanted = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    causes = [
        (f"spec.{field}", "Required value")
        for field, value in (("accessModes", spec.get("accessModes")), ("resources[storage]", wanted))
        if not value
    ]
    if causes:
        raise invalid(kinds.PERSISTENT_VOLUME_CLAIMS, claim["metadata"]["name"], causes)
    spec.setdefault("volumeName", f"pvc-{claim['metadata']['uid']}")
    claim["status"] = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": {"storage": wanted}}


def _claim_update(claim: Object, old: Object) -> None:
    fixed = ("accessModes", "storageClassName", "volumeMode", "volumeName")
    new, before = claim.setdefault("spec", {}), old["spec"]
    if any(new.get(key) != before.get(key) for key in fixed):
        why = "Forbidden: spec is immutable after creation except resources.requests"
        raise invalid(kinds.PERSISTENT_VOLUME_CLAIMS, claim["metadata"]["name"], [("spec", why)])


def _definition(definition: Object) -> None:
    name, spec = definition["metadata"]["name"], definition.setdefault("spec", {})
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    causes = [
        (f"spec.{field}", "Required value")
        for field, value in (
            ("group", spec.get("group")),
            ("names.plural", names.get("plural")),
            ("names.kind", names.get("kind")),
            ("versions", versions),
        )
        if not value
    ]
    if not causes and name != f"{names['plural']}.{spec['group']}":
        causes.append(("metadata.name", f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'))
    if not causes and sum(bool(each.get("storage")) for each in versions) != 1:
        causes.append(("spec.versions", "Invalid value: must have exactly one version marked as storage version"))
    causes += [
        (f"spec.versions[{index}].schema.openAPIV3Schema", "Required value: schemas are required")
        for index, version in enumerate(versions)
        if not (version.get("schema") or {}).get("openAPIV3Schema")
    ]
    _check_schemas(definition)
    if causes:
        raise invalid(kinds.CRDS, name, causes)
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("scope", "Namespaced")
    spec.setdefault("conversion", {"strategy": "None"})
    moment = now()
    definition["status"] = {
        "acceptedNames": dict(names),
        "storedVersions": [each["name"] for each in versions if each.get("storage")],
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": moment,
            }
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ],
    }


def _check_schemas(definition: Object) -> None:
    causes = [
        cause
        for index, version in enumerate(definition["spec"].get("versions") or ())
        for cause in schema_causes(
            (version.get("schema") or {}).get("openAPIV3Schema", {}), f"spec.versions[{index}].schema.openAPIV3Schema"
        )
    ]
    if causes:
        raise invalid(kinds.CRDS, definition["metadata"]["name"], causes)


def _definition_update(definition: Object, old: Object) -> None:
    _check_schemas(definition)
    new, before = definition["spec"], old["spec"]
    fixed = [key for key in ("group", "scope") if new.get(key) != before.get(key)]
    if (new.get("names") or {}).get("plural") != before["names"]["plural"]:
        fixed.append("names.plural")
    if fixed:
        why = "Invalid value: field is immutable"
        raise invalid(kinds.CRDS, definition["metadata"]["name"], [(f"spec.{key}", why) for key in fixed])


_CREATE: Mapping[str, Callable[[Object], None]] = {
    "pods": _pod,
    "jobs.batch": _job,
    "namespaces": _namespace,
    "services": _service,
    "secrets": _secret,
    "persistentvolumeclaims": _claim,
    "events": _event,
    "leases.coordination.k8s.io": _lease,
    "customresourcedefinitions.apiextensions.k8s.io": _definition,
}
_UPDATE: Mapping[str, Callable[[Object, Object], None]] = {
    "pods": _pod_update,
    "jobs.batch": _job_update,
    "leases.coordination.k8s.io": lambda lease, old: _lease(lease),
    "persistentvolumeclaims": _claim_update,
    "customresourcedefinitions.apiextensions.k8s.io": _definition_update,
}
