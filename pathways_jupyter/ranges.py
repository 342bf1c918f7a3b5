"""Sets of numbers as one writes them: ``0,2-4``."""

from __future__ import annotations

from collections.abc import Iterable


def parse(text: str) -> set[int]:
    """Return the numbers that `text` names."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def written(numbers: Iterable[int], separator: str = ",") -> str:
    """Return the inverse of :func:`parse`; three or more in a row become a range."""
    runs: list[list[int]] = []
    for index in sorted(numbers):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return separator.join(separator.join(map(str, run)) if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs)
