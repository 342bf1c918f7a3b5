"""Services with their slices: what is ready, starting or down, and who holds what since when."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pathways_jupyter.render import html, slicemap, text
from pathways_jupyter.render.slicemap import MARKS, THIS_NOTEBOOK, TONES, Box, Owner
from pathways_jupyter.render.view import View
from pathways_jupyter.service.model import Availability, Holder, Service, Slice
from pathways_jupyter.service.names import short_path
from pathways_jupyter.service.podstate import State

_HEADERS = ("", "slice", "state", "since", "hosts")
_SHOWN_HOLDERS = 20
_NONE = "There is no Pathways service in this namespace."
_WHAT_RECLAIMABLE_MEANS = "Reclaimable: the session is silent; its slices are kept until someone needs them."


@dataclass(frozen=True)
class Viewer:
    """The session and user that look at the slices.

    Attributes:
      session: Id of the session of this notebook; empty when it has none, or in a terminal.
      user: Name of this user, whose other notebooks are named differently from other users; empty in a terminal.
    """

    session: str = ""
    user: str = ""

    def has(self, each: Slice) -> Owner:
        """Whether this notebook or another session holds a slice, or has lost it."""
        if each.held_by is None:
            return Owner.NONE
        return Owner.THIS if self.session and each.held_by.session == self.session else Owner.OTHER

    def name(self, holder: Holder) -> str:
        """Name `holder` as the sidebar does: this notebook, another one of this user, or another user."""
        if self.session and holder.session == self.session:
            return THIS_NOTEBOOK
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
    lines += [f"  {each}" for each in _loose(service, viewer, now)]
    lines += [f"  {_WHAT_RECLAIMABLE_MEANS}"] if service.reclaimable else []
    return "\n".join(lines)


def _html(service: Service, viewer: Viewer, now: float) -> str:
    tone = TONES[service.state]
    boxes = [
        Box(
            each.index,
            service.instance_type,
            each.state,
            _word(each, service, viewer),
            viewer.has(each),
            kept=service.availability(each) is Availability.RECLAIMABLE,
            detail=" · ".join(filter(None, [_detail(each, service, viewer, now), _since(each, now), _reasons(each)])),
            down=tuple(host.index for host in each.hosts if host.state is State.DOWN),
        )
        for each in service.slices
    ]
    return html.card(
        tone,
        html.head(service.name, html.toned(tone, _summary(service)), html.code(service.address)),
        slicemap.picture(boxes),
        *(html.line(html.muted(each)) for each in _loose(service, viewer, now)),
        html.line(html.muted(_WHAT_RECLAIMABLE_MEANS)) if service.reclaimable else "",
    )


def _summary(service: Service) -> str:
    if service.problem:
        return service.problem
    total = text.count(len(service.slices), "slice")
    some = "" if service.ready == len(service.slices) else f"{service.ready} ready, "
    silent = f", {service.reclaimable} {Availability.RECLAIMABLE}" if service.reclaimable else ""
    return f"{total} of {service.instance_type}, {some}{service.free} free{silent}"


def _row(each: Slice, service: Service, viewer: Viewer, now: float) -> tuple[str, ...]:
    return (
        MARKS[each.state],
        f"{each.index} {viewer.has(each)}".rstrip(),
        ", ".join(filter(None, [_word(each, service, viewer), _detail(each, service, viewer, now)])),
        _since(each, now),
        _hosts(each),
    )


def _word(each: Slice, service: Service, viewer: Viewer) -> str:
    word = service.availability(each)
    if word is not Availability.IN_USE or each.held_by is None:
        return word
    owner = viewer.name(each.held_by)
    return owner if owner == THIS_NOTEBOOK else f"{word} by {owner}"


def _detail(each: Slice, service: Service, viewer: Viewer, now: float) -> str:
    """What the word does not say of a holder: who it is, and for how long it has been silent, or waits."""
    word, held = service.availability(each), each.held_by
    if held is None or word is Availability.IN_USE:
        return ""
    if word is Availability.DOWN:
        return f"{viewer.name(held)} (lost, waiting for it)"
    silent = f", silent for {text.duration(now - held.reclaimable.silent_since)}" if held.reclaimable else ""
    return f"{viewer.name(held)}{silent}"


def _since(each: Slice, now: float) -> str:
    return text.duration(now - each.held_by.since) if each.held_by else ""


def _hosts(each: Slice) -> str:
    ready = sum(host.state is State.READY for host in each.hosts)
    why = _reasons(each)
    return f"{ready}/{len(each.hosts)}{f' ({why})' if why else ''}"


def _reasons(each: Slice) -> str:
    return ", ".join(sorted({host.reason for host in each.hosts if host.reason}))


def _loose(service: Service, viewer: Viewer, now: float) -> list[str]:
    """Lines about holders without a slice: they wait, or their log does not say which slices they have."""
    drawn = {each.held_by.job for each in service.slices if each.held_by is not None}
    found = [holder for holder in service.holders if holder.job not in drawn]
    lines = [_waits(each, viewer, now) for each in found[:_SHOWN_HOLDERS]]
    # Anyone who may create Jobs may create any number of them.
    return [*lines, f"and {len(found) - len(lines)} more"] if len(found) > len(lines) else lines


def _waits(holder: Holder, viewer: Viewer, now: float) -> str:
    wanted = text.count(sum(holder.instances.values()), "slice")
    does = "waits for" if holder.waiting else "holds" if holder.placed else "has asked for"
    silent = f", {text.reclaimable(holder.reclaimable, now)}" if holder.reclaimable else ""
    return f"{viewer.name(holder)} {does} {wanted}, {text.duration(now - holder.since)}{silent}"
