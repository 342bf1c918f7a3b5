"""The status of a PathwaysJob, as it follows from the status of its JobSet.

A pure function of both objects, so that a controller that was restarted, or that missed changes, arrives at the same
status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pathways_jupyter.base.tones import Tone

PENDING, RUNNING, SUSPENDED, COMPLETED, FAILED = CONDITIONS = (
    "Pending",
    "Running",
    "Suspended",
    "Completed",
    "Failed",
)
TONES: Mapping[str, Tone] = {
    PENDING: Tone.WAIT,
    RUNNING: Tone.OK,
    SUSPENDED: Tone.WAIT,
    COMPLETED: Tone.OK,
    FAILED: Tone.FAIL,
}
FINAL = frozenset({COMPLETED, FAILED})
"""States that a job does not leave."""
_SOURCES = (
    # The first one that holds is the job's state; a JobSet keeps its earlier conditions.
    (FAILED, "Failed"),
    (COMPLETED, "Completed"),
    (SUSPENDED, "Suspended"),
    (RUNNING, "StartupPolicyCompleted"),
)


def derive(job: Mapping[str, Any], jobset: Mapping[str, Any], *, now: str) -> dict[str, Any]:
    """Return the status of `job` while its JobSet is `jobset`.

    Args:
      now: The time of a transition, where the JobSet does not give one.
    """
    before = job.get("status") or {}
    if before.get("terminalState"):
        # Final: a JobSet that is deleted or damaged later does not change what became of the job.
        return dict(before)
    theirs = jobset.get("status") or {}
    held = {each.get("type"): each for each in theirs.get("conditions") or () if each.get("status") == "True"}
    # Kueue changes the spec; the condition follows late, on a resume when the last part has been resumed.
    if (suspend := (jobset.get("spec") or {}).get("suspend")) is not None:
        held |= {"Suspended": held.get("Suspended", {})} if suspend else {}
        held = {kind: each for kind, each in held.items() if suspend or kind != "Suspended"}
    pending = PENDING, held.get("StartupPolicyInProgress", {})
    state, source = next(((kind, held[each]) for kind, each in _SOURCES if each in held), pending)
    status = {**before, "conditions": _conditions(before, state, source, now), "restarts": theirs.get("restarts", 0)}
    if state in FINAL:
        status["terminalState"] = state
    return status


def failed(job: Mapping[str, Any], reason: str, message: str, *, now: str) -> dict[str, Any]:
    """Return the status of a job that cannot have a JobSet."""
    before = job.get("status") or {}
    source = {"reason": reason, "message": message, "lastTransitionTime": now}
    return {**before, "conditions": _conditions(before, FAILED, source, now), "terminalState": FAILED}


def current(job: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the state of a job and its condition; ``Pending`` for a job without a status."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    for kind in reversed(CONDITIONS):
        for each in conditions:
            if each["type"] == kind and each["status"] == "True":
                return kind, each
    return PENDING, {}


def _conditions(before: Mapping[str, Any], state: str, source: Mapping[str, Any], now: str) -> list[dict[str, Any]]:
    """Return the conditions of a job in `state`: that one is True, earlier ones are False, others are absent."""
    previous = {each["type"]: each for each in before.get("conditions") or ()}
    conditions = []
    for kind in CONDITIONS:
        holds = kind == state
        if not holds and kind not in previous:
            continue
        old = previous.get(kind, {})
        changed = old.get("status") != str(holds)
        reason = source.get("reason") or kind if holds else old.get("reason") or kind
        message = str(source.get("message") or "") if holds else f"the job is {state.lower()}"
        time = (source.get("lastTransitionTime") or now) if holds else now
        conditions.append(
            {
                "type": kind,
                "status": str(holds),
                "reason": reason,
                "message": message,
                "lastTransitionTime": time if changed else old.get("lastTransitionTime", time),
            }
        )
    return conditions
