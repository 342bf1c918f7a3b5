"""A curve with a bounded number of points, however long a run is.

When it is full, every second point is dropped, and from then on only every second one is added: the points stay evenly
spread over the whole run. The newest value is always there.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

POINTS = 400
"""Most points; more cannot be seen at the width of a notebook."""


@dataclass(frozen=True)
class Point:
    """One value.

    Attributes:
      at: Seconds since the epoch.
    """

    at: float
    step: int
    value: float


class Curve:
    """A curve that grows at its end; may be read from any thread."""

    def __init__(self, most: int = POINTS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._points: list[Point] = []
        self._newest: Point | None = None
        self._every = 1
        self._count = 0

    def add(self, point: Point) -> None:
        """Add the newest point."""
        with self._lock:
            self._newest = point
            if self._count % self._every == 0:
                if len(self._points) >= self._most:
                    del self._points[1::2]
                    self._every *= 2
                if self._count % self._every == 0:
                    self._points.append(point)
            self._count += 1

    def points(self, most: int | None = None) -> list[Point]:
        """Return the points, oldest first and the newest included; no more than about `most` of them."""
        with self._lock:
            points, newest = list(self._points), self._newest
        if most is not None and len(points) > most:
            points = points[:: -(-len(points) // most)]
        if newest is not None and points[-1] is not newest:
            points.append(newest)
        return points
