"""Services with their slices: what is ready, starting or down, and who holds what since when."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pathways_jupyter.render import html, slicemap, text
from pathways_jupyter.render.html import Tone
from pathways_jupyter.render.slicemap import Box
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View
from pathways_jupyter.service.model import Holder, Service, Slice
from pathways_jupyter.service.names import short_path
from pathways_jupyter.service.podstate import State
from pathways_jupyter.session.registry import SessionRecord

_MARKS = {State.READY: Mark.OK, State.STARTING: Mark.WAIT, State.DOWN: Mark.FAIL}
_TONES = {State.READY: Tone.OK, State.STARTING: Tone.WAIT, State.DOWN: Tone.FAIL}
_HEADERS = ("", "slice", "state", "held by", "since", "hosts")
_NONE = "There is no Pathways service in this namespace."
_RECLAIMABLE = "reclaimable"
_WHAT_RECLAIMABLE_MEANS = "Reclaimable: the session is silent; its slices are kept until someone needs them."


@dataclass(frozen=True)
class Viewer:
    """The session and user that look at the slices.

    Attributes:
      session: Id of the session of this notebook; empty when it has none, or in a terminal.
      user: Name of this user, whose other notebooks are named differently from other users; empty in a terminal.
      lost: The service's numbers of the session's slices that are down. Their proxy's log does not name them any more.
    """

    session: str = ""
    user: str = ""
    lost: frozenset[int] = frozenset()

    @classmethod
    def of(cls, record: SessionRecord) -> Viewer:
        """The notebook of that session."""
        return cls(
            record.id,
            record.user,
            frozenset(each.number for each in record.slices if each.number is not None and not each.up),
        )

    def owner(self, holder: Holder) -> str:
        """Name `holder` as the sidebar does: this notebook, another one of this user, or another user."""
        if self.session and holder.session == self.session:
            return "this notebook"
        if self.user and holder.user == self.user:
            return f"my other notebook {short_path(holder.notebook) or f'(session {holder.session})'}"
        return str(holder)


NO_VIEWER = Viewer()
"""For a viewer without notebooks: holders are called by their names."""


def view(services: Sequence[Service], *, viewer: Viewer = NO_VIEWER, note: str = "", now: float | None = None) -> View:
    """All of `services`.

    Args:
      viewer: Its notebooks' slices are marked.
      note: A limitation of the picture, shown beside its time.
      now: Seconds since the epoch; the clock's when left out.
    """
    now = time.time() if now is None else now
    as_of = html.as_of(now, note)
    if not services:
        return View([], _NONE, html.page(html.line(html.muted(_NONE)), as_of))
    return View(
        list(services),
        "\n\n".join([*(_text(service, viewer, now) for service in services), *([note] if note else [])]),
        html.page(*(_html(service, viewer, now) for service in services), as_of),
    )


def _text(service: Service, viewer: Viewer, now: float) -> str:
    rows = [_row(each, service, viewer, now) for each in service.slices]
    lines = [f"{service.name}: {_summary(service)}", f"  {service.address}", text.table(_HEADERS, rows, indent="  ")]
    lines += [f"  {_waits(holder, viewer, now)}" for holder in _loose(service)]
    lines += [f"  {_WHAT_RECLAIMABLE_MEANS}"] if service.reclaimable else []
    return "\n".join(lines)


def _html(service: Service, viewer: Viewer, now: float) -> str:
    tone = _service_tone(service)
    boxes = [
        Box(
            each.index,
            service.instance_type,
            _tone(each, viewer),
            _state(each, viewer),
            held=each.held_by is not None,
            kept=_is_reclaimable(each),
            detail=_detail(each, service, viewer, now),
            down=tuple(host.index for host in each.hosts if host.state is State.DOWN),
        )
        for each in service.slices
    ]
    return html.card(
        tone,
        html.head(service.name, html.toned(tone, _summary(service)), html.code(service.address)),
        slicemap.picture(boxes),
        *(html.line(html.muted(_waits(holder, viewer, now))) for holder in _loose(service)),
        html.line(html.muted(_WHAT_RECLAIMABLE_MEANS)) if service.reclaimable else "",
        "" if service.ready else html.line(escape(service.reason)),
    )


def _service_tone(service: Service) -> Tone:
    if not service.ready:
        return Tone.FAIL
    return Tone.OK if all(each.state is State.READY for each in service.slices) else Tone.WAIT


def _summary(service: Service) -> str:
    if not service.ready:
        return f"its resource manager is not ready{f' ({service.reason})' if service.reason else ''}"
    total = text.count(len(service.slices), "slice")
    ready = sum(each.state is State.READY for each in service.slices)
    some = "" if ready == len(service.slices) else f"{ready} ready, "
    silent = f", {service.reclaimable} {_RECLAIMABLE}" if service.reclaimable else ""
    return f"{total} of {service.instance_type}, {some}{service.free} free{silent}"


def _row(each: Slice, service: Service, viewer: Viewer, now: float) -> tuple[str, ...]:
    held = each.held_by
    owner = viewer.owner(held) if held else _loser(each, service, viewer)
    return (
        Mark.WAIT if _is_reclaimable(each) else _MARKS[each.state],
        str(each.index),
        _RECLAIMABLE if _is_reclaimable(each) else str(each.state),
        _silent(held, owner, now) or ("-" if each.state is State.READY else ""),
        text.duration(now - held.since) if held else "",
        _hosts(each),
    )


def _is_reclaimable(each: Slice) -> bool:
    return each.state is State.READY and each.held_by is not None and each.held_by.reclaimable is not None


def _silent(holder: Holder | None, owner: str, now: float) -> str:
    """Add to a holder's name for how long its session has been silent, if it is."""
    if holder is None or holder.reclaimable is None:
        return owner
    return f"{owner}, silent for {text.duration(now - holder.reclaimable.silent_since)}"


def _hosts(each: Slice) -> str:
    ready = sum(host.state is State.READY for host in each.hosts)
    why = _reasons(each)
    return f"{ready}/{len(each.hosts)}{f' ({why})' if why else ''}"


def _reasons(each: Slice) -> str:
    return ", ".join(sorted({host.reason for host in each.hosts if host.reason}))


def _tone(each: Slice, viewer: Viewer) -> Tone:
    held = each.held_by
    if _is_reclaimable(each):
        return Tone.WAIT
    if each.state is State.READY and held is not None:
        return Tone.MINE if viewer.session and held.session == viewer.session else Tone.NONE
    return _TONES[each.state]


def _state(each: Slice, viewer: Viewer) -> str:
    held = each.held_by
    if each.state is not State.READY:
        return str(each.state)
    if held is None:
        return "free"
    if held.reclaimable is not None:
        return _RECLAIMABLE
    return "this notebook" if viewer.session and held.session == viewer.session else "taken"


def _detail(each: Slice, service: Service, viewer: Viewer, now: float) -> str:
    held = each.held_by
    if held is None:
        return " · ".join(filter(None, (_loser(each, service, viewer), _reasons(each))))
    since = text.duration(now - held.since)
    owner = _silent(held, viewer.owner(held), now)
    # The state's word names this notebook already.
    return since if owner == _state(each, viewer) else f"{owner}, {since}"


def _loser(each: Slice, service: Service, viewer: Viewer) -> str:
    """Say of a slice without a holder that this notebook's session lost it, and waits for it."""
    if each.state is State.READY or each.index not in viewer.lost:
        return ""
    # A service has its own numbers: this one may not be the session's.
    known = any(holder.session == viewer.session for holder in service.holders)
    return "this notebook (lost, waiting for it)" if known else ""


def _loose(service: Service) -> list[Holder]:
    """Holders without a slice in the picture: they wait, or their log does not say which slices they have."""
    drawn = {each.held_by.job for each in service.slices if each.held_by is not None}
    return [holder for holder in service.holders if holder.job not in drawn]


def _waits(holder: Holder, viewer: Viewer, now: float) -> str:
    wanted = text.count(sum(holder.instances.values()), "slice")
    does = "waits for" if holder.waiting else "holds" if holder.placed else "has asked for"
    silent = f", {text.reclaimable(holder.reclaimable, now)}" if holder.reclaimable else ""
    return f"{viewer.owner(holder)} {does} {wanted}, {text.duration(now - holder.since)}{silent}"
