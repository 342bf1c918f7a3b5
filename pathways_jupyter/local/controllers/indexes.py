"""Sets of completion indexes as a Job's status writes them: ``0,2-4``."""

from __future__ import annotations

from collections.abc import Iterable


def parse_indexes(text: str) -> set[int]:
    """The indexes that `text` names."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """The inverse of :func:`parse_indexes`; three or more in a row become a range."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(",".join(map(str, run)) if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs)
