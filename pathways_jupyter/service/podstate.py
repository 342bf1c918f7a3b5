"""The state of a pod (ready, starting or down), and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pathways_jupyter.kube.objects import Object

FATAL_REASONS: Mapping[str, str] = {
    "ErrImagePull": "its image cannot be pulled",
    "ImagePullBackOff": "its image cannot be pulled",
    "InvalidImageName": "its image's name is invalid",
    "ErrImageNeverPull": "its image is not on the node",
    "CreateContainerConfigError": "its container's configuration is wrong",
    "CreateContainerError": "its container cannot be created",
    "RunContainerError": "its container cannot be started",
    "CrashLoopBackOff": "its program keeps ending",
}
"""Reasons of a waiting container that do not resolve themselves, each with an explanation for error messages."""


class State(StrEnum):
    """State of a pod, a host or a slice."""

    READY = "ready"
    STARTING = "starting"
    DOWN = "down"


def pod_state(pod: Object) -> tuple[State, str]:
    """Return the state of `pod`, and the reason why it is not ready."""
    status = pod.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    if pod["metadata"].get("deletionTimestamp"):
        return State.DOWN, "Terminating"
    if phase in {"Failed", "Succeeded"}:
        return State.DOWN, str(status.get("reason") or _ended(status) or phase)
    waiting = _waiting(status)
    if waiting in FATAL_REASONS:
        return State.DOWN, waiting
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return State.READY, ""
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return State.STARTING, str(condition.get("reason") or "Unschedulable")
    if phase == "Running" and not waiting:
        return State.STARTING, "NotReady"
    return State.STARTING, waiting or phase


def restarts(pod: Object) -> int:
    """Return how often the pod's containers have been restarted."""
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
