"""Objects that live on this host for as long as the notebook keeps a handle to them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

_lock = threading.Lock()
_objects: dict[str, Any] = {}


def add(key: str, value: Any) -> None:
    """Keeps `value` until it is released."""
    with _lock:
        _objects[key] = value


def get(key: str) -> Any:
    """The object.

    Raises:
      LookupError: It is not here: the sidecar restarted, or the session was reconnected, since it was made.
    """
    with _lock:
        if key not in _objects:
            raise LookupError(
                "This object is not on this host any more: the sidecar restarted, or the session was reconnected."
            )
        return _objects[key]


def release(keys: Iterable[str]) -> None:
    """Drops objects; what has a ``close`` is closed."""
    for key in keys:
        with _lock:
            dropped = _objects.pop(key, None)
        close = getattr(dropped, "close", None)
        if isinstance(dropped, Closing) and callable(close):
            close()


class Closing:
    """An object of this package that has something to stop when it is released."""

    def close(self) -> None:
        """Stops it."""
