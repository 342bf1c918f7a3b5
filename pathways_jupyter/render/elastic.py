"""An elastic training run as a picture: slices and a metric over time, where the time went, and what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from pathways_jupyter.elastic.goodput import Spent
from pathways_jupyter.elastic.kinds import Kind
from pathways_jupyter.elastic.record import ElasticEvent, Record, StepNote
from pathways_jupyter.render import html, words
from pathways_jupyter.render.events import ELASTIC_TONES
from pathways_jupyter.render.html import Tone
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View

_WIDTH, _HEIGHT = 640, 60
_EVENTS = 50
"""Newest events that are listed."""
_POINTS = 400
"""Most points of a curve; more cannot be seen at its width."""
_MARKS = {Tone.FAIL: Mark.FAIL, Tone.WAIT: Mark.WARN, Tone.OK: Mark.OK, Tone.NONE: Mark.NONE}
_NAMES: Mapping[Spent, str] = {
    Spent.STEP: "productive steps",
    Spent.TRAINING_PREP: "preparation",
    Spent.PROGRAM_STARTUP: "compilation",
    Spent.DATA_LOADING: "data loading",
    Spent.CHECKPOINT_SAVE: "taking snapshots",
    Spent.CHECKPOINT_RESTORE: "restoring",
    Spent.WASTED_PROGRESS: "repeated steps",
    Spent.SLICE_DOWN: "waiting for slices",
    Spent.SCALE_UP: "growing",
    Spent.REINITIALIZATION: "noticing and reshaping",
}


def said(text: str) -> View:
    """What was done, in a sentence."""
    return View(text, text, html.page(html.line(escape(text))))


def none() -> View:
    """The picture when no run has begun in this process."""
    return said("No elastic training has run in this notebook yet. See help(pathways_jupyter.elastic.train_loop).")


def view(record: Record) -> View:
    """The run as it is now."""
    steps, events = record.steps, record.events
    spent = record.goodput.seconds()
    total = sum(spent.values())
    share = spent[Spent.STEP] / total if total else 0.0
    title = f"Elastic training: {words.count(len(steps), 'step')}"
    now = f"{words.count(steps[-1].slices, 'slice')} in use" if steps else "no step is complete yet"
    lost = record.count(Kind.DETECTED)
    summary = f"{now}, goodput {share:.1%} of {words.duration(total)}, {words.count(lost, 'loss', 'losses')} survived"
    shown = events[-_EVENTS:]
    text = "\n".join([f"{title}; {summary}.", *(f"{_MARKS[_tone(each)]} {_said(each)}" for each in shown)])
    drawing = html.page(
        html.head(title, html.muted(summary)),
        *_curves(steps),
        _bar(spent, total),
        *(html.line(html.toned(_tone(each), str(_MARKS[_tone(each)])), escape(_said(each))) for each in shown),
    )
    return View(record, text, drawing)


def _tone(event: ElasticEvent) -> Tone:
    return ELASTIC_TONES.get(event.kind, Tone.NONE)


def _said(event: ElasticEvent) -> str:
    return f"{words.clock(event.at)}  {event.message}"


def _curves(steps: Sequence[StepNote]) -> list[str]:
    """The number of slices and the first metric over time."""
    if len(steps) < 2:
        return []
    steps = steps[:: max(1, len(steps) // _POINTS)]
    begun, ended = steps[0].at, steps[-1].at
    times = [(each.at - begun) / ((ended - begun) or 1.0) for each in steps]
    slices = [float(each.slices) for each in steps]
    drawn = [_curve("slices", times, slices, 0.0, max(slices), stepped=True)]
    if name := next(iter(steps[-1].metrics), ""):
        values = [each.metrics.get(name, 0.0) for each in steps]
        drawn.append(_curve(name, times, values, min(values), max(values)))
    return drawn


def _curve(
    name: str, times: Sequence[float], values: Sequence[float], low: float, high: float, *, stepped: bool = False
) -> str:
    """A line through `values`, between `low` at the bottom and `high` at the top."""
    span = (high - low) or 1.0
    points, before = [], None
    for time, value in zip(times, values, strict=True):
        x, y = time * _WIDTH, _HEIGHT - (value - low) / span * (_HEIGHT - 4) - 2
        if stepped and before is not None and before != y:
            points.append(f"{x:.1f},{before:.1f}")
        points.append(f"{x:.1f},{y:.1f}")
        before = y
    label = f"{name}: {values[0]:.4g} at first, now {values[-1]:.4g}; between {min(values):.4g} and {max(values):.4g}"
    line = f'<polyline fill="none" stroke="currentColor" stroke-width="1.5" points="{" ".join(points)}"/>'
    drawing = (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" '
        f'height="{_HEIGHT}" preserveAspectRatio="none"><title>{escape(label)}</title>{line}</svg>'
    )
    return html.line(html.muted(label)) + drawing


def _bar(spent: Mapping[Spent, float], total: float) -> str:
    """Where the time went: productive steps first, then the rest by size, as a bar with its legend."""
    rest = sorted((each for each in spent.items() if each[0] is not Spent.STEP), key=lambda each: -each[1])
    parts = [(Spent.STEP, spent[Spent.STEP]), *rest]
    parts = [(what, seconds) for what, seconds in parts if total and seconds / total >= 0.001]
    cells, legend = [], []
    for place, (what, seconds) in enumerate(parts):
        tone = Tone.OK if what is Spent.STEP else Tone.WAIT if place % 2 else Tone.NONE
        share = seconds / total
        said = f"{_NAMES[what]} {share:.1%} ({words.duration(seconds)})"
        cells.append(
            f'<span class="pw-{tone}" title="{escape(said)}" '
            f'style="display:inline-block;height:10px;width:{share:.2%};background:var(--pw-tone)"></span>'
        )
        legend.append(said)
    bar = f'<div style="line-height:0;margin:.4rem 0">{"".join(cells)}</div>'
    return bar + html.line(html.muted(", ".join(legend)))
