"""A session as a card: its state, what it is connected to, its devices by slice, and what happened last."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape

from pathways_jupyter.events import Event, EventKind, SessionState
from pathways_jupyter.render import events as timeline
from pathways_jupyter.render import html, slicemap, text, words
from pathways_jupyter.render.html import Tone
from pathways_jupyter.render.sessions import TONES
from pathways_jupyter.render.slicemap import Box
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View
from pathways_jupyter.session.registry import SessionRecord

_NEWS = {
    EventKind.SLICE_DOWN,
    EventKind.SLICE_HEALED,
    EventKind.PROXY_LOST,
    EventKind.SUPERVISOR_LOST,
    EventKind.WARNING,
}
_RECENT = 5
_MARKS = {Tone.OK: Mark.OK, Tone.WAIT: Mark.WAIT, Tone.FAIL: Mark.FAIL, Tone.NONE: Mark.NONE, Tone.MINE: Mark.OK}

ADVICE: Mapping[SessionState, str] = {
    SessionState.LOST: "Arrays on it are lost. %pathways reconnect gets a new proxy with the same settings.",
    SessionState.FAILED: "%pathways doctor looks for the cause.",
}


def view(
    record: SessionRecord,
    devices: Mapping[int, Sequence[str]],
    events: Sequence[Event] = (),
    *,
    now: float | None = None,
) -> View:
    """The card.

    Args:
      record: The session.
      devices: Kinds of JAX's devices by slice index, e.g. ``{0: ["TPU v6 lite", ...]}``.
      events: What happened, oldest first.
      now: Seconds since the epoch; the clock's when left out.
    """
    now = time.time() if now is None else now
    tone = TONES[record.state]
    news = [event for event in events if event.kind in _NEWS][-_RECENT:]
    over = record.state is SessionState.CLOSED
    about = [
        ("service", record.service),
        ("slices", words.instances(record.instances) if record.instances else ""),
        ("devices", _devices(devices)),
        ("proxy", "" if over else record.pod or record.job),
        ("cluster", record.context),
        ("namespace", record.namespace),
    ]
    advice = ADVICE.get(record.state, "")
    title = f"Session {record.id}"
    age = words.duration(now - record.created)
    plain = [f"{_MARKS[tone]} {title}: {record.state}, {age} old", text.fields(about)]
    plain += [f"  {timeline.line(event)}" for event in news]
    rich = html.card(
        tone,
        html.head(title, html.toned(tone, str(record.state)), html.muted(f"{age} old")),
        html.fields(about),
        slicemap.picture(_boxes(record, devices, events)) if devices and not over else "",
        *map(timeline.rich_line, news),
        html.line(escape(advice)) if advice else "",
    )
    if advice:
        plain.append(f"  {advice}")
    return View(record, "\n".join(filter(None, plain)), html.page(rich))


def none() -> View:
    """The card of a notebook without a session."""
    line = "This notebook is not connected."
    advice = "%pathways connect --help shows how; %pathways connect --local --tpu tpuv6e:2x2=2 needs no cluster."
    return View(None, f"{Mark.NONE} {line}\n  {advice}", html.page(html.line(escape(line), html.muted(advice))))


def _devices(devices: Mapping[int, Sequence[str]]) -> str:
    parts = [f"slice {index}: {len(kinds)} × {kinds[0]}" for index, kinds in sorted(devices.items()) if kinds]
    return ", ".join(parts)


def _boxes(record: SessionRecord, devices: Mapping[int, Sequence[str]], events: Sequence[Event]) -> list[Box]:
    """The session's own slices, in the order in which they were asked for."""
    types = [name for name, number in record.instances.items() for _ in range(number)]
    down = _down(events)
    connected = record.state is SessionState.CONNECTED
    return [
        Box(
            index,
            types[index] if index < len(types) else "",
            Tone.FAIL if index in down else Tone.OK if connected else Tone.NONE,
            "down" if index in down else "ready" if connected else str(record.state),
            held=connected and index not in down,
        )
        for index in sorted(devices)
    ]


def _down(events: Sequence[Event]) -> set[int]:
    down: set[int] = set()
    for event in events:
        index = event.data.get("slice")
        if event.kind is EventKind.SLICE_DOWN and isinstance(index, int):
            down.add(index)
        elif event.kind in {EventKind.SLICE_HEALED, EventKind.SLICE_PLACED} and isinstance(index, int):
            down.discard(index)
    return down
