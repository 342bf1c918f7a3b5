"""Objects that a notebook has a handle to; they stay in this process from call to call."""

from __future__ import annotations

from typing import Any

objects: dict[str, Any] = {}
"""By the keys of their handles."""


def get(key: str) -> Any:
    """Return an object.

    Raises:
      LookupError: It is not here: the sidecar restarted, or the session was reconnected, since it was made.
    """
    try:
        return objects[key]
    except KeyError:
        raise LookupError(
            "This object is not on this host any more: the sidecar restarted, or the session was reconnected."
        ) from None
