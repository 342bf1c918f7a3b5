"""What happened to a session, newest last."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pathways_jupyter.events import Event, EventKind, SessionState
from pathways_jupyter.render import html, words
from pathways_jupyter.render.html import Tone
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View

_TONES = {
    EventKind.SLICE_DOWN: Tone.FAIL,
    EventKind.PROXY_LOST: Tone.FAIL,
    EventKind.SUPERVISOR_LOST: Tone.FAIL,
    EventKind.WARNING: Tone.WAIT,
    EventKind.SLICE_PLACED: Tone.OK,
    EventKind.SLICE_HEALED: Tone.OK,
}
_MARKS = {Tone.FAIL: Mark.FAIL, Tone.WAIT: Mark.WARN, Tone.OK: Mark.OK, Tone.NONE: Mark.NONE, Tone.MINE: Mark.NONE}
_NONE = "Nothing happened yet."


def tone(event: Event) -> Tone:
    """How good or bad the news is."""
    if event.kind is EventKind.STATE:
        state = event.data.get("state")
        if state == SessionState.DEGRADED:
            return Tone.WAIT
        bad = {SessionState.LOST, SessionState.FAILED}
        return Tone.FAIL if state in bad else Tone.OK if state == SessionState.CONNECTED else Tone.NONE
    return _TONES.get(event.kind, Tone.NONE)


def line(event: Event) -> str:
    """One line of text."""
    return f"{_MARKS[tone(event)]} {words.clock(event.at)}  {event.message}"


def rich_line(event: Event) -> str:
    """One line of HTML."""
    return html.line(
        html.toned(tone(event), _MARKS[tone(event)]), html.muted(words.clock(event.at)), escape(event.message)
    )


def view(events: Sequence[Event]) -> View:
    """All of `events` below each other."""
    if not events:
        return View([], _NONE, html.page(html.line(html.muted(_NONE))))
    rows = [(html.toned(tone(each), _MARKS[tone(each)]), words.clock(each.at), escape(each.message)) for each in events]
    return View(list(events), "\n".join(map(line, events)), html.page(html.table((), rows)))


def notice(event: Event, advice: str = "") -> View:
    """News that arrives while the reader does something else, and what to do about it."""
    plain = line(event) + (f"\n  {advice}" if advice else "")
    rich = html.card(tone(event), rich_line(event), html.line(html.muted(advice)) if advice else "")
    return View(event, plain, html.page(rich))
