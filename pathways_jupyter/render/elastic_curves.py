"""The curves of an elastic training run: slices and metrics over time, with the moments at which something happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pathways_jupyter.elastic.record import ElasticEvent, Record
from pathways_jupyter.elastic.series import Series
from pathways_jupyter.render import html, words
from pathways_jupyter.render.events import ELASTIC_TONES
from pathways_jupyter.render.html import Tone

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
    ends = f"{escape(words.clock(span.begun))}</span><span>{escape(words.clock(span.ended))}"
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


def _metric(name: str, curve: Series, span: _Span, marks: str) -> str:
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
    x, said = f"{span.x(event.at):.1f}", escape(f"{words.clock(event.at)}  {event.message}")
    return (
        f'<line class="pw-{tone}" x1="{x}" x2="{x}" y1="0" y2="{_METRIC_HEIGHT}" stroke="var(--pw-tone)" '
        f'stroke-dasharray="2 2" vector-effect="non-scaling-stroke"><title>{said}</title></line>'
    )


def _drawing(label: str, height: int, content: str) -> str:
    name, _, rest = label.partition(": ")
    return html.line(f"<b>{escape(name)}</b>", html.muted(rest)) + (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {_WIDTH} {height}" width="100%" height="{height}" '
        f'preserveAspectRatio="none" style="display:block;border-bottom:1px solid var(--pw-line)">'
        f"<title>{escape(label)}</title>{content}</svg>"
    )
