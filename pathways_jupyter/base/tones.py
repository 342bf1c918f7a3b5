"""The tones of states and events, which notebooks and the sidebar draw as colours and marks.

Each enum whose values people see is a :class:`Toned`; what travels to the sidebar carries its own tone, so that no face
has a table of them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


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


class Toned(StrEnum):
    """An enum whose members are texts with tones: ``READY = "ready", Tone.OK``.

    Attributes:
      tone: Colour and mark of a member; a word beside them always says the same.
    """

    tone: Tone

    def __new__(cls, text: str, tone: Tone = Tone.NONE) -> Self:
        """Return a member; the text alone is its value."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.tone = tone
        return member
