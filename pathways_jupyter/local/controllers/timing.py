"""Deadlines and waits of controllers, in the times that objects carry."""

from __future__ import annotations

from datetime import UTC, datetime


def until(since: str, seconds: float) -> float:
    """Seconds left until `seconds` after the RFC 3339 time `since`; negative when that has passed."""
    return datetime.fromisoformat(since).timestamp() + seconds - datetime.now(UTC).timestamp()


def sooner(one: float | None, other: float | None) -> float | None:
    """The smaller of two waits, where None means for ever."""
    given = [each for each in (one, other) if each is not None]
    return min(given, default=None)


def backoff(failures: int, first: float, most: float) -> float:
    """The wait after so many failures: nothing below zero of them, then `first`, doubled each time up to `most`."""
    return min(first * 2.0 ** min(failures, 32), most) if failures >= 0 else 0.0
