"""The state of a pod (ready, starting or down), and the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pathways_jupyter.base.tones import Tone, Toned
from pathways_jupyter.service import untrusted

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
UNSCHEDULABLE = "Unschedulable"
"""The reason of a pod that has no node; the message is the scheduler's."""


class State(Toned):
    """State of a pod, a host or a slice."""

    READY = "ready", Tone.OK
    STARTING = "starting", Tone.WAIT
    DOWN = "down", Tone.FAIL


def pod_state(pod: Mapping[str, Any]) -> tuple[State, str]:
    """Return the state of `pod`, and the reason why it is not ready."""
    status = pod.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    if pod["metadata"].get("deletionTimestamp"):
        return State.DOWN, "Terminating"
    states = [state for _, state in container_states(pod)]
    if phase in {"Failed", "Succeeded"}:
        over = (state.get("terminated") or {} for state in states)
        ended = next((str(each["reason"]) for each in over if each.get("reason") and each.get("exitCode")), "")
        return State.DOWN, str(status.get("reason") or ended or phase)
    reasons = (str((state.get("waiting") or {}).get("reason") or "") for state in states)
    waiting = next(filter(None, reasons), "")
    if waiting in FATAL_REASONS:
        return State.DOWN, waiting
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return State.READY, ""
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return State.STARTING, str(condition.get("reason") or UNSCHEDULABLE)
    return State.STARTING, waiting or ("NotReady" if phase == "Running" else phase)


def container_states(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name and state of each container of `pod`, those of init containers first."""
    status = pod.get("status") or {}
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        yield str(each.get("name")), each.get("state") or {}


def failed_before(pod: Mapping[str, Any] | None, container: str) -> tuple[str, str]:
    """Return the init container of `pod` whose failure keeps `container` from starting, and why; empty for none."""
    status = (pod or {}).get("status") or {}
    for each in status.get("initContainerStatuses") or ():
        state = each.get("state") or {}
        if each.get("name") == container:
            break
        # Between two attempts it waits, and the last state has the code.
        for ended in (state.get("terminated"), (each.get("lastState") or {}).get("terminated")):
            if ended and ended.get("exitCode") and "running" not in state:
                reason = untrusted.text(ended.get("reason")) or "Error"
                return untrusted.text(each.get("name")), f"{reason}, exit code {ended['exitCode']}"
    return "", ""


def waiting(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Return why a pod does not run, in a word, and the cluster's explanation; both are empty if it does or is over."""
    status = pod.get("status") or {}
    if status.get("phase") in {"Succeeded", "Failed"}:
        return "", ""
    reasons = [state["waiting"] for _, state in container_states(pod) if state.get("waiting")]
    # An init container that cannot start keeps the others waiting, so the reason to act on is not always the first.
    reasons.sort(key=lambda each: each.get("reason") not in FATAL_REASONS)
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            reasons.insert(0, {"reason": UNSCHEDULABLE, **each, "message": no_node(each)})
    if not reasons:
        return "", ""
    return untrusted.text(reasons[0].get("reason")), untrusted.text(reasons[0].get("message"))


def no_node(scheduled: Mapping[str, Any]) -> str:
    """Return the scheduler's message in the condition ``PodScheduled``, without what repeats it about preemption."""
    return untrusted.text(scheduled.get("message")).partition(" preemption: ")[0]


def explain(pod: Mapping[str, Any] | None, reason: str) -> str:
    """Return in words why a pod is not ready; `reason` is what :func:`pod_state` says, or a word of a model."""
    word, message = waiting(pod) if pod is not None else ("", "")
    if reason == UNSCHEDULABLE:
        return f"waits for a node: {message or reason}".rstrip(".")
    if reason in FATAL_REASONS:
        return f"{FATAL_REASONS[reason]}: {message if word == reason and message else reason}".rstrip(".")
    phrases = {"Pending": "its pod is pending", "no pod": "its pod is gone", "not started yet": "not created yet"}
    return phrases.get(reason, f"its pod is not ready ({reason})")


def restarts(pod: Mapping[str, Any]) -> int:
    """Return how often the pod's containers have been restarted."""
    return sum(int(each.get("restartCount") or 0) for each in (pod.get("status") or {}).get("containerStatuses") or ())
