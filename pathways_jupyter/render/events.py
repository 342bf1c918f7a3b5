"""The events of a session, newest last."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest

from pathways_jupyter.base.events import Event, EventKind, SessionState
from pathways_jupyter.elastic.event_kinds import Kind
from pathways_jupyter.render import html, text
from pathways_jupyter.render.html import Tone
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View


@dataclass(frozen=True)
class News:
    """One line of a notice.

    Attributes:
      advice: What to do about it.
    """

    tone: Tone
    text: str
    advice: str = ""


_TONES = {
    EventKind.SLICE_DOWN: Tone.FAIL,
    EventKind.PROXY_LOST: Tone.FAIL,
    EventKind.SUPERVISOR_LOST: Tone.FAIL,
    EventKind.WARNING: Tone.WAIT,
    EventKind.SLICE_PLACED: Tone.OK,
    EventKind.SLICE_HEALED: Tone.OK,
}
ELASTIC_TONES = {
    Kind.SLICE_DOWN: Tone.FAIL,
    Kind.SLICE_UP: Tone.OK,
    Kind.DETECTED: Tone.FAIL,
    Kind.WAITING: Tone.WAIT,
    Kind.RETRY: Tone.WAIT,
    Kind.INJECTED: Tone.WAIT,
    Kind.RESTORED: Tone.WAIT,
    Kind.RESUMED: Tone.OK,
    Kind.GROWN: Tone.OK,
}
_MARKS = {Tone.FAIL: Mark.FAIL, Tone.WAIT: Mark.WARN, Tone.OK: Mark.OK, Tone.NONE: Mark.NONE}
_NONE = "No events yet."


def tone(event: Event) -> Tone:
    """The tone of an event: good, bad or neutral."""
    if event.kind is EventKind.STATE:
        state = event.data.get("state")
        if state in {SessionState.DEGRADED, SessionState.INTERRUPTED}:
            return Tone.WAIT
        bad = {SessionState.LOST, SessionState.FAILED}
        return Tone.FAIL if state in bad else Tone.OK if state == SessionState.CONNECTED else Tone.NONE
    if event.kind is EventKind.ELASTIC:
        # A word that this version does not know is shown without a colour.
        return {str(kind): each for kind, each in ELASTIC_TONES.items()}.get(str(event.data.get("what")), Tone.NONE)
    return _TONES.get(event.kind, Tone.NONE)


def line(event: Event) -> str:
    """One line of text."""
    return f"{_MARKS[tone(event)]} {text.clock(event.at)}  {event.message}"


def rich_line(event: Event) -> str:
    """One line of HTML."""
    return html.line(
        html.toned(tone(event), _MARKS[tone(event)]), html.muted(text.clock(event.at)), escape(event.message)
    )


def view(events: Sequence[Event], *, note: str = "", now: float | None = None) -> View:
    """All of `events`, one on each line.

    Args:
      note: A limitation of the picture, shown beside its time.
      now: Seconds since the epoch; the clock's when left out.
    """
    as_of = html.as_of(time.time() if now is None else now, note)
    if not events:
        return View([], _NONE, html.page(html.line(html.muted(_NONE)), as_of))
    shown = [each for each, after in zip_longest(events, events[1:]) if after is None or not _repeats(each, after)]
    rows = [(html.toned(tone(each), _MARKS[tone(each)]), text.clock(each.at), escape(each.message)) for each in shown]
    plain = "\n".join([*map(line, shown), *([note] if note else [])])
    return View(list(events), plain, html.page(html.table((), rows), as_of))


def _repeats(event: Event, after: Event) -> bool:
    """Whether `after` repeats `event`: the loss of a proxy is followed by the session's state, with the same reason."""
    return (
        event.kind is EventKind.PROXY_LOST and after.kind is EventKind.STATE and after.message.startswith(event.message)
    )


def notice(news: Sequence[News]) -> View:
    """Events that arrive while the user does something else, each with advice."""
    worst = next(
        (tone for tone in (Tone.FAIL, Tone.WAIT, Tone.OK) if any(each.tone is tone for each in news)), Tone.NONE
    )
    plain = [f"{_MARKS[each.tone]} {each.text}" + (f"\n  {each.advice}" if each.advice else "") for each in news]
    rich = [
        html.line(html.toned(each.tone, _MARKS[each.tone]), escape(each.text), html.muted(each.advice)) for each in news
    ]
    return View(list(news), "\n".join(plain), html.page(html.card(worst, *rich)))
