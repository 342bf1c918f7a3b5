"""Services with their slices: what is ready, starting or down, and who holds what since when."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape

from pathways_jupyter.render import html, slicemap, text, words
from pathways_jupyter.render.html import Tone
from pathways_jupyter.render.slicemap import Box
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View
from pathways_jupyter.service.podstate import State
from pathways_jupyter.service.status import Holder, Service, Slice

_MARKS = {State.READY: Mark.OK, State.STARTING: Mark.WAIT, State.DOWN: Mark.FAIL}
_TONES = {State.READY: Tone.OK, State.STARTING: Tone.WAIT, State.DOWN: Tone.FAIL}
_HEADERS = ("", "slice", "state", "held by", "since", "hosts")
_NONE = "There is no Pathways service in this namespace."


def view(services: Sequence[Service], *, mine: str = "", note: str = "", now: float | None = None) -> View:
    """All of `services`.

    Args:
      mine: Id of the session of whoever looks; its slices are marked.
      note: What limits the picture, beside the time as of which it is true.
      now: Seconds since the epoch; the clock's when left out.
    """
    now = time.time() if now is None else now
    as_of = html.as_of(now, note)
    if not services:
        return View([], _NONE, html.page(html.line(html.muted(_NONE)), as_of))
    return View(
        list(services),
        "\n\n".join([*(_text(service, mine, now) for service in services), *([note] if note else [])]),
        html.page(*(_html(service, mine, now) for service in services), as_of),
    )


def _text(service: Service, mine: str, now: float) -> str:
    rows = [_row(each, mine, now) for each in service.slices]
    lines = [f"{service.name}: {_summary(service)}", f"  {service.address}", text.table(_HEADERS, rows, indent="  ")]
    lines += [f"  {_waits(holder, service, now)}" for holder in _loose(service)]
    return "\n".join(lines)


def _html(service: Service, mine: str, now: float) -> str:
    tone = Tone.OK if service.ready else Tone.FAIL
    boxes = [
        Box(
            each.index,
            service.instance_type,
            _tone(each, mine),
            _state(each, mine),
            held=each.held_by is not None,
            detail=_who(each, now),
            down=tuple(host.index for host in each.hosts if host.state is State.DOWN),
        )
        for each in service.slices
    ]
    return html.card(
        tone,
        html.head(service.name, html.toned(tone, _summary(service)), html.code(service.address)),
        slicemap.picture(boxes),
        *(html.line(html.muted(_waits(holder, service, now))) for holder in _loose(service)),
        "" if service.ready else html.line(escape(service.reason)),
    )


def _summary(service: Service) -> str:
    if not service.ready:
        return f"its resource manager is not ready{f' ({service.reason})' if service.reason else ''}"
    total = words.count(len(service.slices), "slice")
    return f"{total} of {service.instance_type}, {service.free} free"


def _row(each: Slice, mine: str, now: float) -> tuple[str, ...]:
    held = each.held_by
    return (
        _MARKS[each.state],
        str(each.index),
        str(each.state),
        _holder(held, mine) if held else ("-" if each.state is State.READY else ""),
        words.duration(now - held.since) if held else "",
        _hosts(each),
    )


def _hosts(each: Slice) -> str:
    ready = sum(host.state is State.READY for host in each.hosts)
    reasons = sorted({host.reason for host in each.hosts if host.reason})
    why = f" ({', '.join(reasons)})" if reasons else ""
    return f"{ready}/{len(each.hosts)}{why}"


def _holder(holder: Holder, mine: str) -> str:
    return "this session" if mine and holder.session == mine else str(holder)


def _tone(each: Slice, mine: str) -> Tone:
    held = each.held_by
    if each.state is State.READY and held is not None:
        return Tone.MINE if mine and held.session == mine else Tone.NONE
    return _TONES[each.state]


def _state(each: Slice, mine: str) -> str:
    held = each.held_by
    if each.state is not State.READY:
        return str(each.state)
    if held is None:
        return "free"
    return "yours" if mine and held.session == mine else "taken"


def _who(each: Slice, now: float) -> str:
    if each.held_by is not None:
        return f"{each.held_by}, {words.duration(now - each.held_by.since)}"
    return ", ".join(sorted({host.reason for host in each.hosts if host.reason}))


def _loose(service: Service) -> list[Holder]:
    """Holders that no slice is drawn as held by: they wait, or their log does not say which slices they have."""
    drawn = {each.held_by.job for each in service.slices if each.held_by is not None}
    return [holder for holder in service.holders if holder.job not in drawn]


def _waits(holder: Holder, service: Service, now: float) -> str:
    wanted = words.count(sum(holder.instances.values()), "slice")
    does = "waits for" if holder.waiting else "holds" if holder.placed else "has asked for"
    return f"{holder} {does} {wanted}, {words.duration(now - holder.since)}"
