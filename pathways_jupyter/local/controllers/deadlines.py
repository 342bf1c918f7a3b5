"""Deadlines of controllers, and ``ttlSecondsAfterFinished``: deletion of finished objects after their time to live."""

from __future__ import annotations

from datetime import UTC, datetime

from pathways_jupyter.local.apiserver.resources import Object, ResourceType
from pathways_jupyter.local.apiserver.store import Store


def until(since: str, seconds: float) -> float:
    """Seconds left until `seconds` after the RFC 3339 time `since`; negative when that has passed."""
    return datetime.fromisoformat(since).timestamp() + seconds - datetime.now(UTC).timestamp()


def sooner(one: float | None, other: float | None) -> float | None:
    """The smaller of two waits, where None means for ever."""
    given = [each for each in (one, other) if each is not None]
    return min(given, default=None)


def expire(store: Store, resource: ResourceType, finished: Object, over: Object) -> float | None:
    """Delete a `finished` object once its time to live is over; return the seconds until then, or None.

    Args:
      over: The condition whose transition time is when it finished.
    """
    seconds = finished["spec"].get("ttlSecondsAfterFinished")
    if seconds is None:
        return None
    if (left := until(over["lastTransitionTime"], seconds)) > 0:
        return left
    metadata = finished["metadata"]
    store.delete(resource, metadata["namespace"], metadata["name"], propagation="Background", uid=metadata["uid"])
    return None
