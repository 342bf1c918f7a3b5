"""The events of a session, newest last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from pathways_jupyter.base.events import Event, EventKind, SessionState
from pathways_jupyter.base.text import clock
from pathways_jupyter.elastic.record import Kind
from pathways_jupyter.render.parts import Part, Tone, card, line, muted, table, toned
from pathways_jupyter.render.view import View, drawn, listing


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
    EventKind.ARRAYS_LOST: Tone.WARN,
    EventKind.UNUSED: Tone.WAIT,
    EventKind.NOT_SUSPENDED: Tone.WARN,
    EventKind.WARNING: Tone.WARN,
    EventKind.SLICE_PLACED: Tone.OK,
    EventKind.SLICE_HEALED: Tone.OK,
}
STATE_TONES: Mapping[str, Tone] = {
    SessionState.CONNECTED: Tone.OK,
    SessionState.DEGRADED: Tone.WARN,
    SessionState.INTERRUPTED: Tone.WARN,
    SessionState.LOST: Tone.FAIL,
    SessionState.SUSPENDING: Tone.WAIT,
    SessionState.SUSPENDED: Tone.WAIT,
    SessionState.RESUMING: Tone.WAIT,
    SessionState.FAILED: Tone.FAIL,
}
ELASTIC_TONES: Mapping[str, Tone] = {
    Kind.SLICE_DOWN: Tone.FAIL,
    Kind.SLICE_UP: Tone.OK,
    Kind.DETECTED: Tone.FAIL,
    Kind.WAITING: Tone.WARN,
    Kind.RETRY: Tone.WARN,
    Kind.NOTE: Tone.WARN,
    Kind.INJECTED: Tone.WARN,
    Kind.RESTORED: Tone.WARN,
    Kind.RESUMED: Tone.OK,
    Kind.GROWN: Tone.OK,
}


def tone(event: Event) -> Tone:
    """Return the tone of an event: good, bad or neutral; a word that this version does not know is neutral."""
    if event.kind is EventKind.STATE:
        return STATE_TONES.get(str(event.data.get("state")), Tone.NONE)
    if event.kind is EventKind.ELASTIC:
        return ELASTIC_TONES.get(str(event.data.get("what")), Tone.NONE)
    return _TONES.get(event.kind, Tone.NONE)


def event_line(event: Event) -> Part:
    """One event on a line."""
    return line(toned(tone(event)), muted(clock(event.at)), event.message)


def view(events: Sequence[Event], *, note: str = "") -> View:
    """All of `events`, one on each line.

    Args:
      note: A limitation of the picture, shown beside its time.
    """
    rows = [
        (toned(tone(each)), clock(each.at), each.message)
        for each, after in zip_longest(events, events[1:])
        # The loss of a proxy is followed by the session's state, with the same reason.
        if after is None
        or each.kind is not EventKind.PROXY_LOST
        or after.kind is not EventKind.STATE
        or not after.message.startswith(each.message)
    ]
    return listing(list(events), table((), rows), none="No events yet.", note=note)


def notice(news: Sequence[News]) -> View:
    """Events that arrive while the user does something else, each with advice."""
    worst = next((tone for tone in (Tone.FAIL, Tone.WARN, Tone.OK) if tone in {each.tone for each in news}), Tone.NONE)
    lines = []
    for each in news:
        plain = f"{each.tone.mark} {each.text}" + (f"\n  {each.advice}" if each.advice else "")
        lines.append(Part(plain, line(toned(each.tone), each.text, muted(each.advice)).html))
    return drawn(list(news), card(worst, *lines))
