"""The report: one Markdown page for people, the same as JSON for programs."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.measure import Table

_SHOWN_PACKAGES = (
    "pathways_jupyter",
    "jax",
    "jaxlib",
    "aiohttp",
    "uvloop",
    "kubernetes",
    "jupyterlab",
    "pathwaysutils",
)


def write(tables: Sequence[Table], output: Path) -> None:
    """Write ``output.md`` and ``output.json``."""
    machine = _machine()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.with_suffix(".md").write_text(_markdown(tables, machine), encoding="utf-8")
    document = {"machine": machine, "tables": [asdict(table) for table in tables]}
    output.with_suffix(".json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def markdown_table(table: Table) -> str:
    """One table as Markdown."""
    columns = list(dict.fromkeys(column for row in table.rows for column in row.values))
    lines = [f"## {table.title}", ""]
    if table.rows:  # Not of a bench that could not be measured.
        lines += [
            f"| {table.unit} | {' | '.join(columns)} |",
            f"| --- | {' | '.join('---:' for _ in columns)} |",
            *(
                f"| {row.name} | {' | '.join(_number(row.values.get(column)) for column in columns)} |"
                for row in table.rows
            ),
            "",
        ]
    if table.goal:
        lines += [f"Goal: {table.goal}. This run: {table.verdict}.", ""]
    return "\n".join([*lines, *(f"- {note}" for note in table.notes), *([""] if table.notes else [])])


def _markdown(tables: Sequence[Table], machine: dict[str, str]) -> str:
    head = [
        "# Benchmarks",
        "",
        "Written by `make bench`: everything below was measured in one run, ours and the peers in turn, on one",
        "machine. Only ratios carry over to another.",
        "",
        *(f"- {name}: {value}" for name, value in machine.items()),
        "",
    ]
    return "\n".join([*head, *(markdown_table(table) for table in tables)])


def _number(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _machine() -> dict[str, str]:
    versions = []
    for package in _SHOWN_PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} not installed")
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "packages": ", ".join(versions),
    }
