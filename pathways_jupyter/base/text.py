"""Numbers and names as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def count(number: int, singular: str, plural: str = "") -> str:
    """Return `number` with its noun: ``1 slice``, ``2 slices``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first of `names`, and how many more there are: ``a, b and 38 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size(number: float) -> str:
    """Return `number` of bytes in the unit that suits it: ``1 byte``, ``812 bytes``, ``3.1 kB``, ``47.7 MB``."""
    if number < 1000:
        return count(round(number), "byte")
    for unit in ("kB", "MB"):
        number /= 1000
        if number < 1000:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} GB"


def ranges(numbers: Iterable[int], separator: str = ",") -> str:
    """Return `numbers` as one writes them, ``0,2-4``; three or more in a row become a range."""
    runs: list[list[int]] = []
    for index in sorted(numbers):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return separator.join(separator.join(map(str, run)) if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs)
