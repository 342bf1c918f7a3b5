"""Columns of the built-in kinds, as ``kubectl get`` shows them."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pathways_jupyter.local.apiserver.podstatus import pod_ready, pod_restarts, pod_status
from pathways_jupyter.local.apiserver.resources import Column, Object

Cells = Callable[[Object], list[Any]]

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def seconds_of(stamp: Any) -> float | None:
    """A timestamp in seconds since the epoch; None when it is not one."""
    if not isinstance(stamp, str):
        return None
    try:
        moment = datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def age(stamp: Any) -> str:
    """The age of a timestamp: ``5m12s``."""
    moment = seconds_of(stamp)
    return "<unknown>" if moment is None else duration(time.time() - moment)


def duration(seconds: float) -> str:
    """A duration in its two most significant units."""
    whole = max(0, int(seconds))
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    return f"{whole // _DAY}d"


def _two(whole: int, large: int, large_name: str, small: int, small_name: str) -> str:
    rest = whole % large // small
    return f"{whole // large}{large_name}" + (f"{rest}{small_name}" if rest else "")


def _columns(*names: str) -> tuple[Column, ...]:
    """Columns by name; those after ``|`` are shown in wide output only."""
    found, priority = [], 0
    for name in names:
        if name == "|":
            priority = 1
        else:
            found.append(Column(name, "", priority=priority))
    return tuple(found)


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: Object) -> str:
    return age(obj["metadata"].get("creationTimestamp"))


def _status(obj: Object) -> dict[str, Any]:
    return obj.get("status") or {}


def _spec(obj: Object) -> dict[str, Any]:
    return obj.get("spec") or {}


def _pairs(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"


def _pod(pod: Object) -> list[Any]:
    status = _status(pod)
    return [
        _name(pod),
        pod_ready(pod),
        pod_status(pod),
        pod_restarts(pod),
        _age(pod),
        status.get("podIP") or "<none>",
        _spec(pod).get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        "<none>",
    ]


def _node(node: Object) -> list[Any]:
    conditions = {each.get("type"): each.get("status") for each in _status(node).get("conditions") or ()}
    ready = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")
    state = [ready, *(["SchedulingDisabled"] if _spec(node).get("unschedulable") else [])]
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    info = _status(node).get("nodeInfo") or {}
    addresses = {each.get("type"): each.get("address") for each in _status(node).get("addresses") or ()}
    return [
        _name(node),
        ",".join(state),
        ",".join(roles) or "<none>",
        _age(node),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or "<none>",
        addresses.get("ExternalIP") or "<none>",
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _service(service: Object) -> list[Any]:
    spec = _spec(service)
    ports = [
        f"{each.get('port')}{':' + str(each['nodePort']) if each.get('nodePort') else ''}/{each.get('protocol', 'TCP')}"
        for each in spec.get("ports") or ()
    ]
    return [
        _name(service),
        spec.get("type", "ClusterIP"),
        spec.get("clusterIP") or "<none>",
        "<none>",
        ",".join(ports) or "<none>",
        _age(service),
        _pairs(spec.get("selector")),
    ]


def _endpoints(endpoints: Object) -> list[Any]:
    found = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in endpoints.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ()
    ]
    shown = ",".join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "")
    return [_name(endpoints), shown or "<none>", _age(endpoints)]


def _event(event: Object) -> list[Any]:
    about, source = event.get("involvedObject") or {}, event.get("source") or {}
    first = event.get("firstTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    series = event.get("series") or {}
    last = event.get("lastTimestamp") or series.get("lastObservedTime") or first
    target = f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"
    reporter = ", ".join(filter(None, (source.get("component") or event.get("reportingComponent"), source.get("host"))))
    return [
        age(last),
        event.get("type", ""),
        event.get("reason", ""),
        target,
        str(event.get("message", "")).strip(),
        about.get("fieldPath", ""),
        reporter,
        age(first),
        event.get("count") or series.get("count") or 1,
        _name(event),
    ]


def _job(job: Object) -> list[Any]:
    spec, status = _spec(job), _status(job)
    states = [each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"]
    shown = {"Complete": "Complete", "Failed": "Failed", "Suspended": "Suspended", "FailureTarget": "FailureTarget"}
    state = next((shown[each] for each in ("Complete", "Failed", "Suspended", "FailureTarget") if each in states), None)
    if state is None:
        state = "Terminating" if job["metadata"].get("deletionTimestamp") else "Running"
    wanted, done = spec.get("completions"), status.get("succeeded", 0)
    parallel = spec.get("parallelism", 1)
    completions = (
        f"{done}/{wanted}" if wanted is not None else f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    )
    begun, ended = seconds_of(status.get("startTime")), seconds_of(status.get("completionTime"))
    length = "" if begun is None else duration((ended or time.time()) - begun)
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    return [
        _name(job),
        state,
        completions,
        length,
        _age(job),
        ",".join(str(each.get("name")) for each in containers),
        ",".join(str(each.get("image")) for each in containers),
        _pairs((spec.get("selector") or {}).get("matchLabels")),
    ]


def _binding(binding: Object) -> list[Any]:
    role, subjects = binding.get("roleRef") or {}, binding.get("subjects") or ()
    names = {
        kind: ", ".join(str(each.get("name")) for each in subjects if each.get("kind") == kind)
        for kind in ("User", "Group", "ServiceAccount")
    }
    return [_name(binding), f"{role.get('kind')}/{role.get('name')}", _age(binding), *names.values()]


def _created(obj: Object) -> list[Any]:
    return [_name(obj), obj["metadata"].get("creationTimestamp")]


COLUMNS: Mapping[str, tuple[Sequence[Column], Cells]] = {
    "pods": (
        _columns("Name", "Ready", "Status", "Restarts", "Age", "|", "IP", "Node", "Nominated Node", "Readiness Gates"),
        _pod,
    ),
    "nodes": (
        _columns(
            *("Name", "Status", "Roles", "Age", "Version", "|"),
            *("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ),
        _node,
    ),
    "services": (
        _columns("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "|", "Selector"),
        _service,
    ),
    "endpoints": (_columns("Name", "Endpoints", "Age"), _endpoints),
    "events": (
        _columns(
            *("Last Seen", "Type", "Reason", "Object", "Message", "|"),
            *("Subobject", "Source", "First Seen", "Count", "Name"),
        ),
        _event,
    ),
    "namespaces": (
        _columns("Name", "Status", "Age"),
        lambda obj: [_name(obj), _status(obj).get("phase", ""), _age(obj)],
    ),
    "configmaps": (
        _columns("Name", "Data", "Age"),
        lambda obj: [_name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), _age(obj)],
    ),
    "secrets": (
        _columns("Name", "Type", "Data", "Age"),
        lambda obj: [_name(obj), obj.get("type", ""), len(obj.get("data") or ()), _age(obj)],
    ),
    "persistentvolumeclaims": (
        _columns("Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "Age"),
        lambda obj: [
            _name(obj),
            _status(obj).get("phase", ""),
            _spec(obj).get("volumeName", ""),
            (_status(obj).get("capacity") or {}).get("storage", ""),
            ",".join(_ACCESS_MODES.get(each, each) for each in _spec(obj).get("accessModes") or ()),
            _spec(obj).get("storageClassName", ""),
            _age(obj),
        ],
    ),
    "serviceaccounts": (
        _columns("Name", "Secrets", "Age"),
        lambda obj: [_name(obj), len(obj.get("secrets") or ()), _age(obj)],
    ),
    "jobs": (
        _columns("Name", "Status", "Completions", "Duration", "Age", "|", "Containers", "Images", "Selector"),
        _job,
    ),
    "leases": (
        _columns("Name", "Holder", "Age"),
        lambda obj: [_name(obj), _spec(obj).get("holderIdentity", ""), _age(obj)],
    ),
    "networkpolicies": (
        _columns("Name", "Pod-Selector", "Age"),
        lambda obj: [_name(obj), _pairs((_spec(obj).get("podSelector") or {}).get("matchLabels")), _age(obj)],
    ),
    "roles": (_columns("Name", "Created At"), _created),
    "clusterroles": (_columns("Name", "Created At"), _created),
    "customresourcedefinitions": (_columns("Name", "Created At"), _created),
    "rolebindings": (_columns("Name", "Role", "Age", "|", "Users", "Groups", "ServiceAccounts"), _binding),
    "clusterrolebindings": (_columns("Name", "Role", "Age", "|", "Users", "Groups", "ServiceAccounts"), _binding),
}
