"""A trace as a view: each chip's time, the operations that cost most, and what the chips waited for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from html import escape

from pathways_jupyter.base.text import count
from pathways_jupyter.profile.summary import BINS, Chip, ChipActivity, Operation, Summary
from pathways_jupyter.render import text
from pathways_jupyter.render.parts import Part, code, head, indented, line, muted, remarks, share_bar, spaced, table
from pathways_jupyter.render.view import View, drawn
from pathways_jupyter.session import clusters
from pathways_jupyter.session.kernel import process
from pathways_jupyter.session.variables import STORAGE_HOST

_MOST_CHIPS = 32
"""Chips that have a line of their own; a notebook keeps about 2 kB for each."""
_MOST_OPERATIONS = 10
_ROW, _HEIGHT = 14, 11
_CELL = re.compile(r"/ipykernel_\d+/\d+\.py$")
"""End of the path that ipykernel gives to the source of a cell."""
_COLOURS: Mapping[ChipActivity, str] = {
    ChipActivity.COMPUTING: "var(--pw-mine)",
    ChipActivity.NETWORK: "#b5651d",
    ChipActivity.INPUT: "#5b9bd5",
    ChipActivity.HOST: "#b9b9b9",
}
"""On a light and on a dark page."""
_NAMES: Mapping[ChipActivity, str] = {
    ChipActivity.COMPUTING: "computing",
    ChipActivity.NETWORK: "network between chips",
    ChipActivity.INPUT: "waiting for input",
    ChipActivity.HOST: "waiting for the host",
}


def view(summary: Summary) -> View:
    """Return the view of `summary`."""
    where = (
        line(muted("Trace:"), code(summary.location)),
        line(muted("All of it in XProf:"), code(_xprof_command(summary.location))),
    )
    if not summary.chips or not summary.seconds:
        return drawn(summary, line("Nothing ran on the chips while the trace was taken."), *where)
    busy = 1.0 - summary.shares[ChipActivity.HOST] - summary.shares[ChipActivity.INPUT]
    title = f"Profile of {count(len(summary.chips), 'chip')} for {_time(summary.seconds)}"
    times = [(_NAMES[each], _COLOURS[each], summary.shares[each] * summary.seconds) for each in ChipActivity]
    return drawn(
        summary,
        head(title, muted(f"busy {busy:.0%}, {_modules(summary)}")),
        Part(", ".join(f"{name} {seconds / summary.seconds:.1%}" for name, _, seconds in times) + ".", ""),
        share_bar("What the chips' time was spent on", times),
        _chips(summary.chips),
        spaced(_operations(summary.operations)),
        *where,
        remarks([summary.left_out] if summary.left_out else []),
    )


def _xprof_command(location: str) -> str:
    """Return the shell command that serves the trace in `location` with XProf, where the bucket can be read."""
    storage, variable = clusters.storage_of(location), ""
    if storage is not None:
        variable = f"{STORAGE_HOST}={shlex.quote(storage.variables[STORAGE_HOST])} "
    return f"{variable}xprof --logdir {shlex.quote(location.partition('/plugins/profile')[0])}"


def _modules(summary: Summary) -> str:
    if not summary.modules:
        return "no program ended"
    most = summary.modules[0]
    others = f" and {count(len(summary.modules) - 1, 'other program')}" if len(summary.modules) > 1 else ""
    return f"{most.name} ran {count(round(most.runs), 'time')}, {_time(most.seconds)} each{others}"


def _chips(chips: Sequence[Chip]) -> Part:
    """Each chip's time from left to right, and in text its shares."""
    shown = chips[:_MOST_CHIPS]
    rows = [
        (
            each.name,
            *(f"{_NAMES[spent]} {each.shares[spent]:.0%}" for spent in ChipActivity if each.shares[spent] >= 0.005),
        )
        for each in shown
    ]
    widest = max(map(len, rows))
    below = [f"{count(len(chips) - _MOST_CHIPS, 'more chip')} are not drawn."] if len(chips) > _MOST_CHIPS else []
    lines = "".join(_line(each, rank) for rank, each in enumerate(shown))
    names = "".join(
        f'<div style="height:{_ROW}px;white-space:nowrap" title="{escape(", ".join(row[1:]))}">{escape(row[0])}</div>'
        for row in rows
    )
    height = len(shown) * _ROW
    html = (
        f'<div style="display:flex;gap:.6rem;margin-top:.5rem"><div style="font-size:11px;line-height:{_ROW}px">{names}'
        '</div><svg role="img" aria-label="When each chip computed" preserveAspectRatio="none" '
        f'viewBox="0 0 {BINS} {height}" style="display:block;flex:1;min-width:0;height:{height}px">{lines}</svg></div>'
    )
    plain = indented(table((), [(*row, *[""] * (widest - len(row))) for row in rows])).text
    return Part("\n".join([plain, *below]), html + remarks(below).html)


def _line(chip: Chip, row: int) -> str:
    """One chip's bins as steps: computing from below, the network on top of it."""
    base = row * _ROW + _HEIGHT
    both = [min(1.0, sum(each)) for each in zip(chip.computing, chip.network, strict=True)]
    below = f'<rect x="0" y="{base - _HEIGHT}" width="{BINS}" height="{_HEIGHT}" fill="var(--pw-fill)"/>'
    # The network's steps show where those of computing, which are drawn later, do not reach.
    for values, spent in ((both, ChipActivity.NETWORK), (chip.computing, ChipActivity.COMPUTING)):
        if any(values):
            steps, before = "", 0.0
            for at, value in enumerate(values):
                if value != before:
                    steps += f"H{at}V{base - value * _HEIGHT:.1f}"
                    before = value
            below += f'<path fill="{_COLOURS[spent]}" d="M0,{base}{steps}H{BINS}V{base}Z"/>'
    return below


def _operations(operations: Sequence[Operation]) -> Part:
    rows = [
        (
            f"{each.share:.1%}",
            _time(each.seconds),
            str(each.count),
            each.scope or each.name,
            each.name if each.scope else "",
            _source(each.source),
        )
        for each in operations[:_MOST_OPERATIONS]
    ]
    return table(("share", "time", "runs", "operation", "in the program", "source"), rows) if rows else Part("", "")


def _source(source: str) -> str:
    """Return a line of a notebook's cell as IPython's tracebacks name it, of a file with the end of its path.

    The names of another kernel's cells are not known here.
    """
    path, _, number = source.rpartition(":")
    shell = process.shell()
    if shell is not None and (cell := shell.compile.format_code_name(path)):
        return f"{' '.join(cell)}, line {number}"
    if _CELL.search(path):
        return f"a cell, line {number}"
    return "/".join(source.split("/")[-2:])


def _time(seconds: float) -> str:
    if seconds >= 1.0:
        return text.duration(seconds)
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"
