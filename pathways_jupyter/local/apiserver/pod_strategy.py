"""Defaults, admission and immutable fields of pods and pod templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pathways_jupyter.local.apiserver import resources as kinds
from pathways_jupyter.local.apiserver.api_errors import invalid
from pathways_jupyter.local.apiserver.resources import Object
from pathways_jupyter.local.apiserver.rules import pod_spec_causes
from pathways_jupyter.service.images import Image

_MUTABLE_POD_FIELDS = {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"}


def prepare_pod(pod: Object) -> None:
    """Default, admit and check a new pod, in place.

    Raises:
      StatusError: 422.
    """
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


def check_pod_update(pod: Object, old: Object) -> None:
    """Default an updated pod, in place, and check that it changes only what may change.

    Raises:
      StatusError: 422.
    """
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
