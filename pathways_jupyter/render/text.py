"""Building blocks of the plain-text pictures."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from enum import StrEnum


class Mark(StrEnum):
    """A sign in front of a line; the line's text always says the same."""

    OK = "✓"
    WAIT = "…"
    WARN = "!"
    FAIL = "✗"
    NONE = "·"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "") -> str:
    """Columns as wide as their widest cell, two spaces apart; no frame, so that it can be copied and pasted."""
    lines = [headers, *rows] if any(headers) else list(rows)
    widths = [max(_width(line[column]) for line in lines) for column in range(len(headers))]
    return "\n".join(
        indent
        + "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def fields(pairs: Sequence[tuple[str, str]], *, indent: str = "  ") -> str:
    """Names and values below each other; pairs without a value are left out."""
    return table(("", ""), [pair for pair in pairs if pair[1]], indent=indent) if any(v for _, v in pairs) else ""


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
