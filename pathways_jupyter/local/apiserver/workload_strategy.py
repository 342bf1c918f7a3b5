"""Defaults, admission, rules and immutable fields of pods, pod templates and Jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pathways_jupyter.local.apiserver import resources as kinds
from pathways_jupyter.local.apiserver.api_errors import StatusError, invalid
from pathways_jupyter.local.apiserver.resources import Object, ResourceType
from pathways_jupyter.service.builtin_kinds import amount
from pathways_jupyter.service.images import Image

Cause = tuple[str, str]
"""A field's path, and what is wrong with it in the words of a real API server."""

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_LABEL = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-',"
    " and must start and end with an alphanumeric character"
)
_MUTABLE_POD_FIELDS = {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"}


def prepare_pod(pod: Object) -> None:
    """Default and check a new pod, in place.

    Raises:
      StatusError: 422.
    """
    spec = pod.setdefault("spec", {})
    _default_pod_spec(spec)
    causes = _pod_spec_causes(spec, "spec")
    if causes:
        raise invalid(kinds.PODS, pod["metadata"]["name"], causes)
    pod["status"] = {"phase": "Pending"}


def _default_pod_spec(spec: Object, *, template: bool = False) -> None:
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
        image = Image.parse(str(container.get("image", "")))
        moves = not image.digest and image.tag in ("", "latest")
        container.setdefault("imagePullPolicy", "Always" if moves else "IfNotPresent")
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
        if not template and (limits := container["resources"].get("limits")):
            container["resources"]["requests"] = {**limits, **(container["resources"].get("requests") or {})}


def sidecars(spec: Object) -> list[Object]:
    """Return a pod's restartable init containers, which run beside the others."""
    return [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]


def admit_pod(pod: Object, find: Callable[[ResourceType, str, str], Object | None]) -> None:
    """Give a new pod its service account, in place.

    Args:
      find: Returns an object, see :meth:`~pathways_jupyter.local.apiserver.store.Store.find`.

    Raises:
      StatusError: 403, there is no such service account.
    """
    spec, metadata = pod.setdefault("spec", {}), pod["metadata"]
    namespace, name = metadata["namespace"], spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    if find(kinds.SERVICE_ACCOUNTS, namespace, name) is None:
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        # A generated name comes after admission: every attempt of a controller gets the same answer.
        shown = metadata.get("generateName") or metadata["name"]
        raise StatusError(403, f'pods "{shown}" is forbidden: {why}', kinds.PODS, metadata["name"])


def check_pod_update(pod: Object, old: Object) -> None:
    """Default an updated pod, in place, and check that it changes only what may change (``kubectl apply``).

    Raises:
      StatusError: 422.
    """
    _default_pod_spec(pod.setdefault("spec", {}))
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
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    for key, value in defaults.items():
        if spec.get(key) is None:
            spec[key] = value
    if spec.get("selector"):  # kubectl: a Job that was exported and is applied again
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
    _default_pod_spec(pod_spec, template=True)
    causes = _pod_spec_causes(pod_spec, "spec.template.spec")
    if restart_policy not in ("OnFailure", "Never"):
        causes.append(
            (
                "spec.template.spec.restartPolicy",
                'Required value: valid values: "OnFailure", "Never"'
                if restart_policy is None
                else _unsupported(restart_policy, ("OnFailure", "Never")),
            )
        )
    if spec["completionMode"] not in ("NonIndexed", "Indexed"):
        causes.append(("spec.completionMode", _unsupported(spec["completionMode"], ("NonIndexed", "Indexed"))))
    elif spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        causes.append(("spec.completions", "Required value: when completion mode is Indexed"))
    if causes:
        raise invalid(kinds.JOBS, name, causes)


def check_job_update(job: Object, old: Object) -> None:
    """Default an updated Job, in place, and check that it changes only what may change (``kubectl apply``, Kueue).

    Raises:
      StatusError: 422.
    """
    spec, before = job.setdefault("spec", {}), old["spec"]
    _default_pod_spec(spec.setdefault("template", {}).setdefault("spec", {}), template=True)
    changed = [key for key in ("selector", "completionMode", "completions") if spec.get(key) != before.get(key)]
    # A Job that has not started may still be moved to other nodes: queueing systems do so while it is suspended.
    scheduling = bool(before.get("suspend")) and not (old.get("status") or {}).get("startTime")
    if _fixed_template(spec, scheduling) != _fixed_template(before, scheduling):
        changed.append("template")
    if changed:
        causes = [(f"spec.{key}", "Invalid value: field is immutable") for key in changed]
        raise invalid(kinds.JOBS, job["metadata"]["name"], causes)


def _fixed_template(spec: Object, scheduling: bool) -> Object:
    template: Object = spec["template"]
    if not scheduling:
        return template
    metadata = {key: each for key, each in (template.get("metadata") or {}).items() if key not in _JOB_MUTABLE_METADATA}
    return {"metadata": metadata, "spec": {k: v for k, v in template["spec"].items() if k not in _JOB_MUTABLE_SPEC}}


def _unsupported(value: Any, supported: Sequence[str]) -> str:
    listed = ", ".join(f'"{each}"' for each in supported)
    return f'Unsupported value: "{value}": supported values: {listed}'


def _pod_spec_causes(spec: Object, path: str) -> list[Cause]:
    """Return faults of a pod's spec, which ``job apply`` shows with their lines."""
    if not isinstance(spec.get("containers"), list) or not spec["containers"]:
        return [(f"{path}.containers", "Required value")]
    causes: list[Cause] = []
    names: set[str] = set()
    volumes: set[Any] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        causes += _name(volume.get("name"), f"{path}.volumes[{index}].name", volumes)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            causes += _container(container, f"{path}.{field}[{index}]", names, volumes)
    causes += _choice(spec, "restartPolicy", _RESTART_POLICIES, path)
    return causes


def _container(container: Object, where: str, names: set[str], volumes: set[Any]) -> Iterator[Cause]:
    yield from _name(container.get("name"), f"{where}.name", names)
    if not container.get("image"):
        yield f"{where}.image", "Required value"
    yield from _choice(container, "imagePullPolicy", _PULL_POLICIES, where)
    for index, port in enumerate(container.get("ports") or ()):
        if not 0 < (number := port.get("containerPort", 0)) < 65536:
            path = f"{where}.ports[{index}].containerPort"
            yield path, f"Invalid value: {number}: must be between 1 and 65535, inclusive"
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield f"{where}.env[{index}].name", "Required value"
        if variable.get("value") and variable.get("valueFrom"):
            yield f"{where}.env[{index}].valueFrom", 'Invalid value: "": may not be specified when `value` is not empty'
    paths: set[Any] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            yield f"{where}.volumeMounts[{index}].name", f'Not found: "{mount.get("name")}"'
        if mount.get("mountPath") in paths:
            mount_path = mount["mountPath"]
            yield f"{where}.volumeMounts[{index}].mountPath", f'Invalid value: "{mount_path}": must be unique'
        paths.add(mount.get("mountPath"))
    yield from _resources(container.get("resources") or {}, f"{where}.resources")


def _resources(resources: Object, where: str) -> Iterator[Cause]:
    limits = resources.get("limits") or {}
    for field in ("limits", "requests"):
        for name, quantity in (resources.get(field) or {}).items():
            if amount(quantity) < 0:
                yield f"{where}.{field}[{name}]", f'Invalid value: "{quantity}": must be greater than or equal to 0'
            elif "/" in name and amount(quantity) % 1:
                yield f"{where}.{field}[{name}]", f'Invalid value: "{quantity}": must be an integer'
            elif field == "requests" and amount(quantity) > amount(limits.get(name, quantity)):
                why = f"must be less than or equal to {name} limit of {limits[name]}"
                yield f"{where}.requests", f'Invalid value: "{quantity}": {why}'


def _name(name: Any, path: str, names: set[Any]) -> Iterator[Cause]:
    """Yield faults of the name of a container or a volume, which is added to `names`."""
    if not name:
        yield path, "Required value"
    elif name in names:
        yield path, f'Duplicate value: "{name}"'
    elif len(str(name)) > 63 or not DNS_LABEL.fullmatch(str(name)):
        yield path, f'Invalid value: "{name}": {_LABEL_RULE}'
    names.add(name)


def _choice(source: Object, field: str, supported: Sequence[str], path: str) -> Iterator[Cause]:
    """Yield faults of a field that has one of some values."""
    if source.get(field) not in supported:
        yield f"{path}.{field}", _unsupported(source.get(field), supported)
