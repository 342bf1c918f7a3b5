"""Plain text: tables and marks, and times and devices in words."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pathways_jupyter.base import tpu
from pathways_jupyter.base.text import clock, count

if TYPE_CHECKING:
    # Loading the extension must not import asyncio, which the modules need that this one imports.
    from pathways_jupyter.service.model import Reclaimable


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "") -> str:
    """Columns as wide as their widest cell, two spaces apart; no frame, so that it can be copied and pasted."""
    lines = [headers, *rows] if any(headers) else list(rows)
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        indent
        + "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def duration(seconds: float) -> str:
    """`seconds` in a readable form: ``0.4 s``, ``12 s``, ``3 min 05 s``, ``2 h 10 min``, ``3 d 4 h``."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes, rest = divmod(total, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def moment(at: float) -> str:
    """Return the local date and time of `at`, for output that is saved and read on another day."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def later(at: float, before: float) -> str:
    """Return the time of `at` beside the :func:`moment` of `before`: without the date where it is the same."""
    same_day = time.localtime(at)[:3] == time.localtime(before)[:3]
    return clock(at) if same_day else moment(at)


def reclaimable(proxy: Reclaimable, now: float) -> str:
    """Return the state of a proxy whose session is silent, and for how long it has been."""
    return f"reclaimable, silent for {duration(now - proxy.silent_since)}"


def instances(requested: Mapping[str, int]) -> str:
    """``2 slices of tpuv6e:2x2 (8 chips)``."""
    chips = sum(tpu.parse_instance_type(name).chips * number for name, number in requested.items())
    parts = [f"{count(number, 'slice')} of {name}" for name, number in requested.items()]
    return f"{' and '.join(parts)} ({count(chips, 'chip')})" if parts else "no slices"
