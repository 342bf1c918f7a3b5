"""How a pod is: ready, on its way, or down, and why, in one word each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pathways_jupyter.kube.objects import Object

# A container that waits for one of these will not start by waiting longer.
_HOPELESS = {
    "CrashLoopBackOff",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}


class State(StrEnum):
    """How a pod, a host or a slice is."""

    READY = "ready"
    STARTING = "starting"
    DOWN = "down"


def pod_state(pod: Object) -> tuple[State, str]:
    """State of `pod`, and the reason why it is not ready."""
    status = pod.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    if pod["metadata"].get("deletionTimestamp"):
        return State.DOWN, "Terminating"
    if phase in {"Failed", "Succeeded"}:
        return State.DOWN, str(status.get("reason") or _ended(status) or phase)
    waiting = _waiting(status)
    if waiting in _HOPELESS:
        return State.DOWN, waiting
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return State.READY, ""
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return State.STARTING, str(condition.get("reason") or "Unschedulable")
    if phase == "Running" and not waiting:
        return State.STARTING, "NotReady"
    return State.STARTING, waiting or phase


def trouble(pod: Object) -> str:
    """Why a pod will not start by waiting longer, as a sentence for its owner; empty while there is hope."""
    state, reason = pod_state(pod)
    if state is not State.DOWN:
        return ""
    for container in _containers(pod.get("status") or {}):
        for part in ("waiting", "terminated"):
            message = ((container.get("state") or {}).get(part) or {}).get("message")
            if message:
                return f"{reason}: {' '.join(str(message).split())}"
    message = (pod.get("status") or {}).get("message")
    return f"{reason}: {message}" if message else reason


def restarts(pod: Object) -> int:
    """How often the pod's containers have been restarted."""
    return sum(int(each.get("restartCount") or 0) for each in (pod.get("status") or {}).get("containerStatuses") or ())


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _waiting(status: Mapping[str, Any]) -> str:
    for container in _containers(status):
        if reason := ((container.get("state") or {}).get("waiting") or {}).get("reason"):
            return str(reason)
    return ""


def _ended(status: Mapping[str, Any]) -> str:
    for container in _containers(status):
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("reason") and ended.get("exitCode"):
            return str(ended["reason"])
    return ""
