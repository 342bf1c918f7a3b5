"""Tables for ``kubectl get``: formed by the server, so that every client shows the same."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pathways_jupyter.local.apiserver.resources import Column, Object, ResourceType
from pathways_jupyter.local.apiserver.workload_strategy import sidecars

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEP = re.compile(
    r"""\.(?P<field>[\w-]+)|\[(?P<index>\d+)\]|\[\?\(@\.(?P<key>[\w-]+)==["'](?P<value>[^"']*)["']\)\]"""
)


def as_table(resource: ResourceType, objects: Sequence[Object], revision: str, include: str = "") -> Object:
    """Return objects as a ``Table``.

    Args:
      include: What of each object to put beside its row: ``Metadata`` (also when empty), ``Object`` or ``None``.
    """
    columns: Sequence[Column] = (_NAME, *(resource.columns or (_AGE,)))
    if not resource.custom:
        columns = _COLUMNS.get(resource.plural, columns)
    rows = []
    for obj in objects:
        row: Object = {"cells": [_cell(obj, column) for column in columns]}
        if include == "Object":
            row["object"] = resource.of(obj)
        elif include != "None":
            head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            row["object"] = {**head, "metadata": obj["metadata"]}
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": revision},
        "columnDefinitions": [
            {
                "name": each.name,
                "type": "string" if each.type == "date" else each.type,
                "format": "name" if each.name == "Name" else "",
                "priority": each.priority,
            }
            for each in columns
        ],
        "rows": rows,
    }


def first_value(path: str, obj: Any) -> Any:
    """Return the value at a JSONPath in `obj`; None where there is none, or for a path that columns rarely use."""
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            return None
        position = step.end()
        if step["field"] is not None:
            obj = obj.get(step["field"]) if isinstance(obj, dict) else None
        elif not isinstance(obj, list):
            return None
        elif step["index"] is not None:
            obj = obj[int(step["index"])] if int(step["index"]) < len(obj) else None
        else:
            matching = (each for each in obj if isinstance(each, dict) and str(each.get(step["key"])) == step["value"])
            obj = next(matching, None)
    return obj


def seconds_of(stamp: Any) -> float | None:
    """Return a timestamp in seconds since the epoch; None when it is not one."""
    if not isinstance(stamp, str):
        return None
    try:
        moment = datetime.datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def duration(seconds: float) -> str:
    """Return a duration as kubectl writes it, in its two most significant units: ``2m30s``, ``5h``, ``3d4h``."""
    total = max(0, int(seconds))

    def two(large: int, large_name: str, small: int, small_name: str) -> str:
        rest = total % large // small
        return f"{total // large}{large_name}" + (f"{rest}{small_name}" if rest else "")

    if total < 2 * _MINUTE:
        return f"{total}s"
    if total < 10 * _MINUTE:
        return two(_MINUTE, "m", 1, "s")
    if total < 3 * _HOUR:
        return f"{total // _MINUTE}m"
    if total < 8 * _HOUR:
        return two(_HOUR, "h", _MINUTE, "m")
    if total < 2 * _DAY:
        return f"{total // _HOUR}h"
    return two(_DAY, "d", _HOUR, "h") if total < 8 * _DAY else f"{total // _DAY}d"


def _cell(obj: Object, column: Column) -> Any:
    value = first_value(column.path, obj) if isinstance(column.path, str) else column.path(obj)
    if column.type == "date":
        moment = seconds_of(value)
        return "<unknown>" if moment is None else duration(time.time() - moment)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str | int | float) else str(value)


def _wide(name: str, path: str | Callable[[Object], Any]) -> Column:
    """Return a column of wide output, of a value that may be missing."""

    def value(obj: Object) -> Any:
        return (first_value(path, obj) if isinstance(path, str) else path(obj)) or "<none>"

    return Column(name, value, priority=1)


def _pairs(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items()))


def _node_status(node: Object) -> str:
    ready = first_value('.status.conditions[?(@.type=="Ready")].status', node)
    state = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    return f"{state},SchedulingDisabled" if node["spec"].get("unschedulable") else state


def _service_ports(service: Object) -> str:
    ports = (service.get("spec") or {}).get("ports") or ()
    return ",".join(f"{each.get('port')}/{each.get('protocol', 'TCP')}" for each in ports) or "<none>"


def _event_target(event: Object) -> str:
    target = event.get("involvedObject") or {}
    return f"{str(target.get('kind', '')).lower()}/{target.get('name', '')}"


def _last_seen(event: Object) -> Any:
    return event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")


def _job_status(job: Object) -> str:
    conditions = (job.get("status") or {}).get("conditions") or ()
    states = {each.get("type") for each in conditions if each.get("status") == "True"}
    for state in ("Complete", "Failed", "Suspended"):
        if state in states:
            return state
    return "Terminating" if job["metadata"].get("deletionTimestamp") else "Running"


def _job_completions(job: Object) -> str:
    spec, done = job["spec"], (job.get("status") or {}).get("succeeded", 0)
    if spec.get("completions") is None and spec.get("parallelism", 1) > 1:
        return f"{done}/1 of {spec['parallelism']}"
    return f"{done}/{spec.get('completions', 1)}"


def _job_duration(job: Object) -> str:
    begin, end = (seconds_of(first_value(f".status.{key}Time", job)) for key in ("start", "completion"))
    return "" if begin is None else duration((end or time.time()) - begin)


def pod_ready(pod: Object) -> str:
    """Return its READY column, as ``1/2``: ready containers, of those that run at the same time."""
    beside = {each["name"] for each in sidecars(pod["spec"])}
    statuses = [
        *_statuses(pod, "containerStatuses"),
        *(each for each in _statuses(pod, "initContainerStatuses") if each.get("name") in beside),
    ]
    total = len(pod["spec"].get("containers") or ()) + len(beside)
    return f"{sum(bool(each.get('ready')) for each in statuses)}/{total}"


def pod_restarts(pod: Object) -> str:
    """Return the number of its containers' restarts."""
    statuses = [*_statuses(pod, "containerStatuses"), *_statuses(pod, "initContainerStatuses")]
    return str(sum(int(each.get("restartCount") or 0) for each in statuses))


def pod_status(pod: Object) -> str:
    """Return its STATUS column: the phase, or the reason why it does not run."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    # A sidecar that has ended after the others says nothing about a pod that was initialized.
    if conditions.get("Initialized") != "True" and (initializing := _initializing(pod)):
        return initializing
    word, alive = str(status.get("reason") or status.get("phase") or "Unknown"), False
    for each in reversed(_statuses(pod, "containerStatuses")):
        state = each.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            word = str(waiting["reason"])
        elif terminated is not None:
            word = str(terminated.get("reason", "Error"))
        elif each.get("ready") and state.get("running") is not None:
            alive = True
    if word == "Completed" and alive:
        return "Running" if conditions.get("Ready") == "True" else "NotReady"
    return word


def _statuses(pod: Object, field: str) -> Sequence[dict[str, Any]]:
    return (pod.get("status") or {}).get(field) or ()


def _initializing(pod: Object) -> str:
    """Return the state of the current init container; empty once all are done."""
    beside = {each["name"] for each in sidecars(pod["spec"])}
    for index, each in enumerate(_statuses(pod, "initContainerStatuses")):
        state = each.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if each.get("name") in beside and each.get("started"):
            continue
        if terminated is not None:
            return f"Init:{terminated.get('reason', 'Error')}"
        if waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(pod['spec'].get('initContainers') or ())}"
    return ""


_NAME = Column("Name", ".metadata.name")
_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_COLUMNS: Mapping[str, Sequence[Column]] = {
    "pods": (
        _NAME,
        Column("Ready", pod_ready),
        Column("Status", pod_status),
        Column("Restarts", pod_restarts),
        _AGE,
        _wide("IP", ".status.podIP"),
        _wide("Node", ".spec.nodeName"),
    ),
    "nodes": (
        _NAME,
        Column("Status", _node_status),
        _AGE,
        Column("Version", ".status.nodeInfo.kubeletVersion"),
        _wide("Internal-IP", '.status.addresses[?(@.type=="InternalIP")].address'),
        _wide("OS-Image", ".status.nodeInfo.osImage"),
        _wide("Kernel-Version", ".status.nodeInfo.kernelVersion"),
        _wide("Container-Runtime", ".status.nodeInfo.containerRuntimeVersion"),
    ),
    "services": (
        _NAME,
        Column("Type", ".spec.type"),
        Column("Cluster-IP", ".spec.clusterIP"),
        Column("Port(s)", _service_ports),
        _AGE,
        _wide("Selector", lambda service: _pairs(service["spec"].get("selector"))),
    ),
    "events": (
        Column("Last Seen", _last_seen, "date"),
        Column("Type", ".type"),
        Column("Reason", ".reason"),
        Column("Object", _event_target),
        Column("Message", lambda event: str(event.get("message", "")).strip()),
        _wide("Source", lambda event: first_value(".source.component", event) or event.get("reportingComponent")),
        Column("Count", lambda event: event.get("count") or 1, priority=1),
        _wide("Name", ".metadata.name"),
    ),
    "namespaces": (_NAME, Column("Status", ".status.phase"), _AGE),
    "configmaps": (
        _NAME,
        Column("Data", lambda obj: len({**(obj.get("data") or {}), **(obj.get("binaryData") or {})})),
        _AGE,
    ),
    "secrets": (_NAME, Column("Type", ".type"), Column("Data", lambda obj: len(obj.get("data") or ())), _AGE),
    "persistentvolumeclaims": (
        _NAME,
        Column("Status", ".status.phase"),
        Column("Volume", ".spec.volumeName"),
        Column("Capacity", ".status.capacity.storage"),
        Column("Access Modes", lambda claim: ",".join(_MODES.get(each, each) for each in claim["spec"]["accessModes"])),
        Column("StorageClass", ".spec.storageClassName"),
        _AGE,
    ),
    "jobs": (
        _NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        _AGE,
    ),
    "leases": (_NAME, Column("Holder", ".spec.holderIdentity"), _AGE),
    "networkpolicies": (
        _NAME,
        Column("Pod-Selector", lambda policy: _pairs(first_value(".spec.podSelector.matchLabels", policy)) or "<none>"),
        _AGE,
    ),
    **dict.fromkeys(
        ("rolebindings", "clusterrolebindings"),
        (_NAME, Column("Role", lambda binding: "{kind}/{name}".format(**binding["roleRef"])), _AGE),
    ),
}
"""The columns of built-in kinds; those of another have name and age."""
