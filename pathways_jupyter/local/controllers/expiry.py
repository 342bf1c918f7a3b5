"""``ttlSecondsAfterFinished``: delete finished objects after their time to live."""

from __future__ import annotations

from pathways_jupyter.local.apiserver.resources import Object, ResourceType
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.controllers import timing


def expire(store: Store, resource: ResourceType, finished: Object, over: Object) -> float | None:
    """Delete a `finished` object once its time to live is over; return the seconds until then, or None.

    Args:
      over: The condition whose transition time is when it finished.
    """
    seconds = finished["spec"].get("ttlSecondsAfterFinished")
    if seconds is None:
        return None
    if (left := timing.until(over["lastTransitionTime"], seconds)) > 0:
        return left
    metadata = finished["metadata"]
    store.delete(resource, metadata["namespace"], metadata["name"], propagation="Background", uid=metadata["uid"])
    return None
