"""An elastic training run as a view: slices and metrics over time, where the time went, and what happened."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from html import escape

from pathways_jupyter.base.text import clock, count
from pathways_jupyter.elastic.goodput import SnapshotCost, Spent
from pathways_jupyter.elastic.record import Kind, Record
from pathways_jupyter.render import text
from pathways_jupyter.render.parts import Part, head, line, muted, share_bar, table, toned
from pathways_jupyter.render.view import View, drawn, said

_MAX_EVENTS = 50
"""Newest events that are listed."""
_MAX_SNAPSHOTS = 5
"""Newest snapshots whose costs are listed."""
_NAMES: Mapping[Spent, tuple[str, str]] = {
    Spent.STEP: ("productive steps", "var(--pw-ok)"),
    Spent.TPU_INITIALIZATION: ("TPU initialization", "#b9b9b9"),
    Spent.TRAINING_PREP: ("preparation", "#8a8a8a"),
    Spent.PROGRAM_STARTUP: ("compilation", "#a78bca"),
    Spent.DATA_LOADING: ("data loading", "#5b9bd5"),
    Spent.CHECKPOINT_SAVE: ("taking snapshots", "#4fb3bf"),
    Spent.CHECKPOINT_RESTORE: ("restoring", "#d8a32b"),
    Spent.WASTED_PROGRESS: ("repeated steps", "var(--pw-fail)"),
    Spent.SLICE_DOWN: ("waiting for slices", "#b5651d"),
    Spent.SCALE_UP: ("growing", "#7aa84f"),
    Spent.REINITIALIZATION: ("noticing and reshaping", "var(--pw-wait)"),
}
"""Words and colour of each category; the colours differ on a light and on a dark page."""


def view(record: Record | None, metrics: Sequence[str] = ()) -> View:
    """Return the run as it is now.

    Args:
      record: None if no run has begun in this process.
      metrics: The metrics to draw; the first one when empty.
    """
    if record is None:
        return said("No elastic training has run in this notebook yet. See help(pathways_jupyter.elastic.train_loop).")
    latest, spent = record.latest, record.goodput.seconds()
    total = sum(spent.values())
    share = spent[Spent.STEP] / total if total else 0.0
    # A loop of one's own need not note its steps.
    has_steps = latest is not None or record.total_steps is not None
    title = f"Elastic training: {record.progress}" if has_steps else "Elastic training"
    used = "no step is complete yet"
    if slices := record.slices if latest is not None or not has_steps else []:
        used = f"{count(slices[-1][1], 'slice')} in use"
    losses = count(record.count(Kind.DETECTED), "loss", "losses")
    summary = f"{used}, goodput {share:.1%} of {text.duration(total)}, {losses} survived"
    # A kernel that was killed leaves the view of a run that goes on.
    when = f"{summary}, as of {text.moment(record.ended or time.time())}"
    top = head(title, toned(record.phase.tone, record.phase), muted(when))
    rows = [(toned(each.kind.tone), muted(clock(each.at)), each.message) for each in record.events[-_MAX_EVENTS:]]
    # Productive steps first.
    by_size = sorted(spent, key=lambda what: (what is not Spent.STEP, -spent[what]))
    return drawn(
        record,
        Part(f"{title}; {record.phase}; {summary}.", top.html),
        _curves(record, list(metrics) or list(record.newest)[:1]),
        share_bar("goodput", [(*_NAMES[what], spent[what]) for what in by_size]),
        _costs(record.goodput.snapshots[-_MAX_SNAPSHOTS:]),
        table((), rows),
    )


def _costs(snapshots: Sequence[SnapshotCost]) -> Part:
    """Return the cost of each snapshot; nothing without any."""
    rows = []
    for each in snapshots:
        times = ["" if seconds is None else f"{seconds:.3f} s" for seconds in (each.waited, each.copied, each.written)]
        rows.append((f"{each.step}", f"{each.nbytes / 1e6:,.1f} MB", *times, each.writer or ""))
    headers = ("snapshot before step", "state", "training waited", "copied in", "written in", "by")
    return table(headers, rows) if rows else Part("", "")


_WIDTH = 640
_MARGIN = 3
_SLICES_HEIGHT, _METRIC_HEIGHT = 44, 72
_MAX_MARKS = 60
"""Newest events that are marked in the curves."""


def _curves(record: Record, metrics: Sequence[str]) -> Part:
    """Return the number of slices and `metrics` over time, in HTML only; nothing before the first step."""
    changes = record.slices
    if not changes:
        return Part("", "")
    # From the run's own begin, but a record may hold an earlier run's changes too.
    began, ended = min(record.begun, changes[0][0]), record.ended or time.time()

    def x(at: float) -> str:
        share = (at - began) / ((ended - began) or 1.0)
        return f"{min(1.0, max(0.0, share)) * _WIDTH:.1f}"

    marks = ""
    for event in record.events[-_MAX_MARKS:]:
        tone, title = event.kind.tone, escape(f"{clock(event.at)}  {event.message}")
        marks += (
            f'<line class="pw-{tone}" x1="{x(event.at)}" x2="{x(event.at)}" y1="0" y2="{_METRIC_HEIGHT}" '
            'stroke="var(--pw-tone)" stroke-dasharray="2 2" vector-effect="non-scaling-stroke">'
            f"<title>{title}</title></line>"
        )
    # The number stays the same from one change to the next.
    steps = [(x(changes[0][0]), changes[0][1])]
    for (at, number), (_, before) in zip(changes[1:], changes, strict=False):
        steps += [(x(at), before), (x(at), number)]
    steps.append((x(ended), changes[-1][1]))
    most = max(record.total_slices, *(number for _, number in changes), 1)
    charts = [_chart("slices", steps, _SLICES_HEIGHT, marks, most=most)]
    for name in metrics:
        if name in record.newest:
            values = [(each.at, each.metrics[name]) for each in record.curve(name)]
            points = [(x(at), value) for at, value in values if math.isfinite(value)]
            none = line(muted(f"{name}: no finite value"))
            charts.append(_chart(name, points, _METRIC_HEIGHT, marks) if points else none)
    ends = f"<span>{escape(clock(began))}</span><span>{escape(clock(ended))}</span>"
    axis = f'<div class="pw-muted" style="display:flex;justify-content:space-between">{ends}</div>'
    return Part("", "".join(each.html for each in charts) + axis)


def _chart(name: str, points: Sequence[tuple[str, float]], height: int, marks: str, *, most: float = 0.0) -> Part:
    """One curve with its name and range above it.

    Args:
      points: Coordinates in the direction of time, and values.
      most: If given, the scale goes from 0 to this value, and the area below the curve is filled.
    """
    values = [value for _, value in points]
    low, high = min(values), max(values)
    bottom, top = (0.0, most) if most else (low, high)
    scale, base = (height - 2 * _MARGIN) / ((top - bottom) or 1.0), height - _MARGIN
    drawn = " ".join(f"{x},{base - (value - bottom) * scale:.1f}" for x, value in points)
    content = (
        '<polyline fill="none" stroke="var(--pw-mine)" stroke-width="1.5" stroke-linejoin="round" '
        f'vector-effect="non-scaling-stroke" points="{drawn}"/>{marks}'
    )
    if most:
        corners = f"{drawn} {points[-1][0]},{base} {points[0][0]},{base}"
        content = f'<polygon fill="var(--pw-mine)" fill-opacity=".22" stroke="none" points="{corners}"/>{content}'
    range_text = f"{values[0]:.4g} at first, now {values[-1]:.4g}; between {low:.4g} and {high:.4g}"
    label = escape(f"{name}: {range_text}")
    return Part(
        "",
        line(Part("", f"<b>{escape(name)}</b>"), muted(range_text)).html
        + f'<svg role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {height}" width="100%" height="{height}" '
        f'preserveAspectRatio="none" style="display:block;border-bottom:1px solid var(--pw-line)">'
        f"<title>{label}</title>{content}</svg>",
    )
