"""The tones of states and events, which notebooks and the sidebar draw as colours and marks.

Each enum whose values people see has its tones beside it, as a property ``tone``; what travels to the sidebar carries
its own, so that no face has a table of them.
"""

from __future__ import annotations

from enum import StrEnum


class Mark(StrEnum):
    """A sign in front of a line; the line's text always says the same."""

    OK = "✓"
    WAIT = "…"
    WARN = "!"
    FAIL = "✗"
    NONE = "·"


class Tone(StrEnum):
    """The meaning of a colour; a word or a mark beside it always says the same."""

    OK = "ok"
    WAIT = "wait"
    WARN = "warn"
    FAIL = "fail"
    NONE = "none"

    @property
    def mark(self) -> Mark:
        """The sign of the same meaning."""
        return Mark[self.name]
