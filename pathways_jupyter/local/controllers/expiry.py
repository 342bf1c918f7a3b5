"""``ttlSecondsAfterFinished``: what has finished is deleted when its time has come."""

from __future__ import annotations

from pathways_jupyter.local.apiserver.resources import Object, ResourceType
from pathways_jupyter.local.apiserver.store import Store
from pathways_jupyter.local.controllers import timing


def expire(store: Store, resource: ResourceType, finished: Object, over: Object) -> float | None:
    """Deletes an object once it has been `finished` for as long as it asks to be kept; seconds until then, or None.

    Args:
      over: The condition that tells since when it is finished.
    """
    seconds = finished["spec"].get("ttlSecondsAfterFinished")
    if seconds is None:
        return None
    if (left := timing.until(over["lastTransitionTime"], seconds)) > 0:
        return left
    metadata = finished["metadata"]
    store.delete(resource, metadata["namespace"], metadata["name"], propagation="Background", uid=metadata["uid"])
    return None
