"""Numbers and how they are taken: medians of interleaved runs, each in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class NotMeasured(Exception):
    """This machine lacks what a bench needs; the message says what."""


@dataclass(frozen=True)
class Row:
    """One measured thing; `values` by column, in the table's unit."""

    name: str
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class Table:
    """Measurements that belong side by side.

    Attributes:
      title: What was measured.
      unit: Of every value in the table, e.g. ``ms`` or ``MB/s``.
      rows: One a measurement.
      goal: What the numbers should be, in words; empty where there is none.
      verdict: Whether they are, in words that hold the numbers.
      notes: What a reader has to know to read the numbers rightly.
    """

    title: str
    unit: str
    rows: Sequence[Row]
    goal: str = ""
    verdict: str = ""
    notes: Sequence[str] = field(default_factory=tuple)


def median(values: Sequence[float]) -> float:
    """Return the median, which one slow run of many does not move."""
    return statistics.median(values)


def interleave(runs: Mapping[str, Callable[[], float]], *, times: int) -> dict[str, float]:
    """Medians of `times` rounds in which every run has its turn, so that a busy moment hits all alike."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(times):
        for name, run in runs.items():
            taken[name].append(run())
    return {name: median(values) for name, values in taken.items()}


def in_process(module: str, *arguments: str, environ: Mapping[str, str] | None = None, timeout: float = 300) -> Any:
    """Run ``python -m module`` and read the JSON on the last line that it prints.

    Raises:
      RuntimeError: The process failed; the message ends with what it wrote.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environ, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise RuntimeError(
            f"{' '.join(command[1:])} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return json.loads(lines[-1])
