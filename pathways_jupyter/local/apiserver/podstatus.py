"""Summary of a pod's state, as ``kubectl get pods`` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pathways_jupyter.local.apiserver.resources import Object


def pod_ready(pod: Object) -> str:
    """Return its READY column, as ``1/2``: ready containers, of those that run at the same time."""
    sidecars = {
        each["name"] for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always"
    }
    statuses = [
        *_statuses(pod, "containerStatuses"),
        *(each for each in _statuses(pod, "initContainerStatuses") if each.get("name") in sidecars),
    ]
    total = len(pod["spec"].get("containers") or ()) + len(sidecars)
    return f"{sum(bool(each.get('ready')) for each in statuses)}/{total}"


def pod_restarts(pod: Object) -> str:
    """Return the number of its containers' restarts."""
    statuses = [*_statuses(pod, "containerStatuses"), *_statuses(pod, "initContainerStatuses")]
    return str(sum(int(each.get("restartCount") or 0) for each in statuses))


def pod_status(pod: Object) -> str:
    """Return its STATUS column: the phase, or the reason why it does not run."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
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
            word = _ended(terminated)
        elif each.get("ready") and state.get("running") is not None:
            alive = True
    if word == "Completed" and alive:
        return "Running" if conditions.get("Ready") == "True" else "NotReady"
    return word


def _statuses(pod: Object, field: str) -> Sequence[dict[str, Any]]:
    return (pod.get("status") or {}).get(field) or ()


def _initializing(pod: Object) -> str:
    """Return the state of the current init container; empty once all are done."""
    specs = {each["name"]: each for each in pod["spec"].get("initContainers") or ()}
    for index, each in enumerate(_statuses(pod, "initContainerStatuses")):
        state = each.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if specs.get(each.get("name"), {}).get("restartPolicy") == "Always" and each.get("started"):
            continue
        if terminated is not None:
            return f"Init:{_ended(terminated)}"
        if waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(specs)}"
    return ""


def _ended(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode')}"
