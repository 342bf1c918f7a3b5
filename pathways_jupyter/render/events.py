"""The events of a session, newest last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from pathways_jupyter.base.events import Event, EventKind
from pathways_jupyter.base.text import clock
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.render.parts import Part, card, line, muted, table, toned
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


def event_line(event: Event) -> Part:
    """One event on a line."""
    return line(toned(event.tone), muted(clock(event.at)), event.message)


def view(events: Sequence[Event], *, note: str = "") -> View:
    """All of `events`, one on each line.

    Args:
      note: A limitation of the view, shown beside its time.
    """
    rows = [
        (toned(each.tone), clock(each.at), each.message)
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
