"""Arithmetic on controllers' deadlines and waits."""

from __future__ import annotations

from datetime import UTC, datetime


def until(since: str, seconds: float) -> float:
    """Seconds left until `seconds` after the RFC 3339 time `since`; negative when that has passed."""
    return datetime.fromisoformat(since).timestamp() + seconds - datetime.now(UTC).timestamp()


def sooner(one: float | None, other: float | None) -> float | None:
    """The smaller of two waits, where None means for ever."""
    given = [each for each in (one, other) if each is not None]
    return min(given, default=None)
