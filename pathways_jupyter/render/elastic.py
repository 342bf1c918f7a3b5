"""An elastic training run as a picture: slices and metrics over time, where the time went, and what happened."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pathways_jupyter.elastic.curve import Curve
from pathways_jupyter.elastic.event_kinds import Kind, Phase
from pathways_jupyter.elastic.goodput import Spent
from pathways_jupyter.elastic.record import ElasticEvent, Record
from pathways_jupyter.render import html, text
from pathways_jupyter.render.events import ELASTIC_TONES
from pathways_jupyter.render.html import Tone
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View, said

_EVENTS = 50
"""Newest events that are listed."""
_MARKS = {Tone.FAIL: Mark.FAIL, Tone.WAIT: Mark.WARN, Tone.OK: Mark.OK, Tone.NONE: Mark.NONE}
_PHASE_TONES = {
    Phase.TRAINING: Tone.OK,
    Phase.RECOVERING: Tone.WAIT,
    Phase.WAITING: Tone.WAIT,
    Phase.DONE: Tone.OK,
    Phase.STOPPED: Tone.FAIL,
}
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


def none() -> View:
    """The picture when no run has begun in this process."""
    return said("No elastic training has run in this notebook yet. See help(pathways_jupyter.elastic.train_loop).")


def view(record: Record, metrics: Sequence[str] = (), *, now: float | None = None) -> View:
    """The run as it is now.

    Args:
      metrics: The metrics to draw; the first one when empty.
      now: Seconds since the epoch; the clock's when left out.
    """
    events, latest, spent = record.events, record.latest, record.goodput.seconds()
    total = sum(spent.values())
    share = spent[Spent.STEP] / total if total else 0.0
    of = f" of {record.wanted}" if record.wanted is not None else ""
    # A loop of one's own need not note its steps.
    has_steps = latest is not None or record.wanted is not None
    title = f"Elastic training: {record.done}{of} steps" if has_steps else "Elastic training"
    used = "no step is complete yet"
    if slices := record.slices if latest is not None or not has_steps else []:
        used = f"{text.count(slices[-1][1], 'slice')} in use"
    losses = text.count(record.count(Kind.DETECTED), "loss", "losses")
    summary = f"{used}, goodput {share:.1%} of {text.duration(total)}, {losses} survived"
    shown, drawn = events[-_EVENTS:], list(metrics) or list(record.curves)[:1]
    lines = [f"{_MARKS[_tone(each)]} {text.clock(each.at)}  {each.message}" for each in shown]
    plain = "\n".join([f"{title}; {record.phase}; {summary}.", *lines])
    rows = [
        (html.toned(_tone(each), _MARKS[_tone(each)]), html.muted(text.clock(each.at)), escape(each.message))
        for each in shown
    ]
    drawing = html.page(
        html.head(title, html.toned(_PHASE_TONES[record.phase], record.phase), html.muted(summary)),
        *curves(record, drawn, time.time() if now is None else now),
        _bar(spent, total),
        html.table((), rows) if rows else "",
    )
    return View(record, plain, drawing)


def _tone(event: ElasticEvent) -> Tone:
    return ELASTIC_TONES.get(event.kind, Tone.NONE)


def _bar(spent: Mapping[Spent, float], total: float) -> str:
    """Where the time went: productive steps first, then the rest by size, as a bar with its legend."""
    rest = sorted((each for each in spent.items() if each[0] is not Spent.STEP), key=lambda each: -each[1])
    parts = [each for each in [(Spent.STEP, spent[Spent.STEP]), *rest] if total and each[1] / total >= 0.001]
    cells, legend = [], []
    for what, seconds in parts:
        name, colour = _NAMES[what]
        share = seconds / total
        label = f"{name} {share:.1%} ({text.duration(seconds)})"
        cells.append(
            f'<span title="{escape(label)}" style="flex:{share:.4f};min-width:1px;background:{colour}"></span>'
        )
        swatch = (
            f'<span style="display:inline-block;width:9px;height:9px;border-radius:2px;background:{colour}"></span>'
        )
        legend.append(f'<span style="white-space:nowrap">{swatch} {html.muted(label)}</span>')
    bar = (
        f'<div role="img" aria-label="goodput" style="display:flex;height:12px;border-radius:3px;overflow:hidden;'
        f'margin:.5rem 0 .3rem">{"".join(cells)}</div>'
    )
    return bar + f'<div style="display:flex;flex-wrap:wrap;gap:.1rem .9rem">{"".join(legend)}</div>'


_WIDTH = 640
_SLICES_HEIGHT, _METRIC_HEIGHT = 44, 72
_MARGIN = 3
_MARKED = 60
"""Newest events that are marked in the curves."""


@dataclass(frozen=True)
class _Span:
    """The time that is drawn, in seconds since the epoch."""

    begun: float
    ended: float

    def x(self, at: float) -> float:
        share = (at - self.begun) / ((self.ended - self.begun) or 1.0)
        return min(1.0, max(0.0, share)) * _WIDTH


def curves(record: Record, metrics: Sequence[str], now: float) -> list[str]:
    """The number of slices and `metrics` over time; nothing before the first step.

    Args:
      now: The end of the time that is drawn while the run goes on; seconds since the epoch.
    """
    changes = record.slices
    if not changes:
        return []
    # From the run's own begin, but a record may hold an earlier run's changes too.
    span = _Span(min(record.begun, changes[0][0]), record.ended or now)
    marks = "".join(_mark(event, span) for event in record.events[-_MARKED:])
    drawn = [_slices(changes, record.total, span, marks)]
    drawn += [_metric(name, record.curves[name], span, marks) for name in metrics if name in record.curves]
    ends = f"{escape(text.clock(span.begun))}</span><span>{escape(text.clock(span.ended))}"
    axis = f'<div class="pw-muted" style="display:flex;justify-content:space-between"><span>{ends}</span></div>'
    return [*drawn, axis]


def _slices(changes: Sequence[tuple[float, int]], total: int, span: _Span, marks: str) -> str:
    counts = [count for _, count in changes]
    top = max([total, *counts]) or 1
    height = _SLICES_HEIGHT

    def y(count: int) -> float:
        return height - _MARGIN - count / top * (height - 2 * _MARGIN)

    points = [f"{span.x(changes[0][0]):.1f},{y(counts[0]):.1f}"]
    for (at, count), before in zip(changes[1:], counts, strict=False):
        points += [f"{span.x(at):.1f},{y(before):.1f}", f"{span.x(at):.1f},{y(count):.1f}"]
    points.append(f"{_WIDTH},{y(counts[-1]):.1f}")
    base = f"{_WIDTH},{y(0):.1f} {span.x(changes[0][0]):.1f},{y(0):.1f}"
    area = f'<polygon fill="var(--pw-mine)" fill-opacity=".22" stroke="none" points="{" ".join(points)} {base}"/>'
    label = f"slices: {counts[0]} at first, now {counts[-1]}; between {min(counts)} and {max(counts)}"
    return _drawing(label, height, area + _line(points) + marks)


def _metric(name: str, curve: Curve, span: _Span, marks: str) -> str:
    finite = [each for each in curve.points() if abs(each.value) < float("inf")]
    if not finite:
        return html.line(html.muted(f"{name}: no finite value"))
    values = [each.value for each in finite]
    low, high, height = min(values), max(values), _METRIC_HEIGHT
    scale = (height - 2 * _MARGIN) / ((high - low) or 1.0)
    points = [f"{span.x(each.at):.1f},{height - _MARGIN - (each.value - low) * scale:.1f}" for each in finite]
    label = f"{name}: {values[0]:.4g} at first, now {values[-1]:.4g}; between {low:.4g} and {high:.4g}"
    return _drawing(label, height, _line(points) + marks)


def _line(points: Sequence[str]) -> str:
    return (
        '<polyline fill="none" stroke="var(--pw-mine)" stroke-width="1.5" stroke-linejoin="round" '
        f'vector-effect="non-scaling-stroke" points="{" ".join(points)}"/>'
    )


def _mark(event: ElasticEvent, span: _Span) -> str:
    tone = ELASTIC_TONES.get(event.kind, Tone.NONE)
    x, title = f"{span.x(event.at):.1f}", escape(f"{text.clock(event.at)}  {event.message}")
    return (
        f'<line class="pw-{tone}" x1="{x}" x2="{x}" y1="0" y2="{_METRIC_HEIGHT}" stroke="var(--pw-tone)" '
        f'stroke-dasharray="2 2" vector-effect="non-scaling-stroke"><title>{title}</title></line>'
    )


def _drawing(label: str, height: int, content: str) -> str:
    name, _, rest = label.partition(": ")
    return html.line(f"<b>{escape(name)}</b>", html.muted(rest)) + (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {_WIDTH} {height}" width="100%" height="{height}" '
        f'preserveAspectRatio="none" style="display:block;border-bottom:1px solid var(--pw-line)">'
        f"<title>{escape(label)}</title>{content}</svg>"
    )
