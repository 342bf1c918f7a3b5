"""Taints and tolerations, matched as Kubernetes' scheduler matches them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

KEEPS_AWAY = ("NoSchedule", "NoExecute")
"""Effects of taints that keep a pod off a node."""


def untolerated(
    tolerations: Iterable[Mapping[str, Any]], taints: Iterable[Mapping[str, Any]], effects: Sequence[str]
) -> dict[str, Any] | None:
    """Return the first of `taints` with one of `effects` that no toleration fits; None if there is none."""
    given = tuple(tolerations)
    for taint in taints:
        if taint["effect"] in effects and not any(_tolerates(each, taint) for each in given):
            return dict(taint)
    return None


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))
