"""Services with their slices: what is ready, starting or down, and who holds what since when.

In HTML slices are a map: a box for each, with its hosts and their chips inside. The colour is the health of the slice,
and a word beside it says the same. A blue frame and a filled star mark what this notebook has, a grey frame and a
hollow star what others have. The chips of a held slice are filled, those of a free one are hollow, and those of a slice
that is kept for a silent session are half filled. While a slice starts its chips are dashed; if it is down they are
crossed. The sidebar draws slices likewise, and so does a session's card.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape

from pathways_jupyter.base import tpu
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.text import count
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.render import text
from pathways_jupyter.render.parts import Part, card, code, head, line, muted, once, remarks, spaced, toned
from pathways_jupyter.render.view import View, listing
from pathways_jupyter.service.model import Availability, Holder, Service, Slice
from pathways_jupyter.service.names import short_path
from pathways_jupyter.service.podstate import State

THIS_NOTEBOOK = "this notebook"
"""The word for a slice that the notebook which shows it has."""

_HEADERS = ("", "slice", "state", "since", "hosts")
_SHOWN_HOLDERS = 20
_MANY_HOSTS = 16
_MOST_SLICES = 128
_WHAT_RECLAIMABLE_MEANS = "Reclaimable: the session is silent; its slices are kept until someone needs them."


class Owner(StrEnum):
    """Holder of a slice, or one that has lost it and waits for it; the value is the mark beside its number."""

    NONE = ""
    THIS = "★"
    OTHER = "☆"


@dataclass(frozen=True)
class Box:
    """One slice to draw.

    Attributes:
      word: What one can do with it, in a word or two.
      reclaimable: Whether the session that holds it is silent.
      detail: Its holder, or what it waits for.
      down: Indices of hosts that do not run.
    """

    index: int
    instance_type: str
    health: State
    word: str
    owner: Owner = Owner.NONE
    reclaimable: bool = False
    detail: str = ""
    down: tuple[int, ...] = ()


@dataclass(frozen=True)
class Viewer:
    """The session and user that look at the slices.

    Attributes:
      session: Id of the session of this notebook; empty when it has none, or in a terminal.
      user: Name of this user, whose other notebooks are named differently from other users; empty in a terminal.
    """

    session: str = ""
    user: str = ""

    def ownership(self, each: Slice) -> Owner:
        """Return whether this notebook or another session holds a slice, or has lost it."""
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


def view(services: Sequence[Service], *, viewer: Viewer = NO_VIEWER, note: str = "", live: str = "") -> View:
    """All of `services`; in HTML with the time beside the title, as the view may be seen much later.

    Args:
      viewer: Its notebooks' slices are marked.
      note: A limitation of the view, shown beside its time; a view with one has no colours.
      live: The session while which lives the view is drawn again: it has colours only where the page knows that it
        does, as a kernel that was killed leaves the view as it was.
    """
    now = time.time()
    shown = [
        spaced(_service(service, viewer, now - service.clock_ahead, live=live, still=bool(note)))
        for service in services
    ]
    none = "There is no Pathways service in this namespace."
    return listing(list(services), *shown, none=none, note=note)


def _service(service: Service, viewer: Viewer, now: float, *, live: str, still: bool) -> Part:
    tone, summary = service.state.tone, _summary(service)
    rows, boxes = [], []
    for each in service.slices:
        word, detail = _words(each, service, viewer, now)
        since = text.duration(now - each.held_by.since) if each.held_by else ""
        ready = sum(host.state is State.READY for host in each.hosts)
        why = ", ".join(each.remarks)
        rows.append(
            (
                each.state.tone.mark,
                f"{each.index} {viewer.ownership(each)}".rstrip(),
                ", ".join(filter(None, [word, detail])),
                since,
                f"{ready}/{len(each.hosts)}{f' ({why})' if why else ''}",
            )
        )
        boxes.append(
            Box(
                each.index,
                service.instance_type,
                each.state,
                word,
                viewer.ownership(each),
                reclaimable=service.availability(each) is Availability.RECLAIMABLE,
                detail=" · ".join(filter(None, [detail, since, why])),
                down=tuple(host.index for host in each.hosts if host.state is State.DOWN),
            )
        )
    notes = _holders_without_slice(service, viewer, now) + ([_WHAT_RECLAIMABLE_MEANS] if service.reclaimable else [])
    lines = [f"{service.name}: {summary}", f"  {service.address}", text.table(_HEADERS, rows, indent="  ")]
    when = f"{summary}, as of {text.moment(now)}"
    frame = Tone.NONE if still else tone
    state = once(tone, summary, when) if live else Part(summary, toned(frame, when).html)
    title = head(service.name, state, code(service.address))
    rich = card(frame, title, map_of(boxes), remarks(notes), live=live).html
    return Part("\n".join([*lines, *(f"  {each}" for each in notes)]), rich)


def _summary(service: Service) -> str:
    if service.problem:
        return service.problem
    total = count(len(service.slices), "slice")
    some = "" if service.ready == len(service.slices) else f"{service.ready} ready, "
    silent = f", {service.reclaimable} {Availability.RECLAIMABLE}" if service.reclaimable else ""
    return f"{total} of {service.instance_type}, {some}{service.free} free{silent}"


def _words(each: Slice, service: Service, viewer: Viewer, now: float) -> tuple[str, str]:
    """Return a slice's state, and what that does not say of a holder: its user, and its time of silence or waiting."""
    word, holder = service.availability(each), each.held_by
    if holder is None:
        return word, ""
    owner = viewer.name(holder)
    if word is Availability.IN_USE:
        return (owner if owner == THIS_NOTEBOOK else f"{word} by {owner}"), ""
    if word is Availability.DOWN:
        return word, f"{owner} (lost, waiting for it)"
    silent = f", silent for {text.duration(now - holder.reclaimable.silent_since)}" if holder.reclaimable else ""
    return word, f"{owner}{silent}"


def _holders_without_slice(service: Service, viewer: Viewer, now: float) -> list[str]:
    """Lines about holders without a slice: they wait, or their log does not say which slices they have."""
    drawn = {each.held_by.job for each in service.slices if each.held_by is not None}
    holders = [holder for holder in service.holders if holder.job not in drawn]
    lines = []
    # Anyone who may create Jobs may create any number of them.
    for each in holders[:_SHOWN_HOLDERS]:
        amount = count(sum(each.instances.values()), "slice")
        does = "waits for" if each.waiting else "holds" if each.placed else "has asked for"
        silent = f", {text.reclaimable(each.reclaimable, now)}" if each.reclaimable else ""
        lines.append(f"{viewer.name(each)} {does} {amount}, {text.duration(now - each.since)}{silent}")
    return [*lines, f"and {len(holders) - len(lines)} more"] if len(holders) > len(lines) else lines


def map_of(boxes: Sequence[Box]) -> Part:
    """Return a map of slices, in HTML only."""
    drawn = "".join(map(_box, boxes[:_MOST_SLICES]))
    rest = len(boxes) - _MOST_SLICES
    more = line(muted(f"and {count(rest, 'more slice', 'more slices')}")).html if rest > 0 else ""
    return Part("", f'<div class="pw-map" role="list">{drawn}</div>{more}')


def _box(box: Box) -> str:
    tone = box.health.tone
    label = f"slice {box.index}, {box.instance_type}, {box.word}{f', {box.detail}' if box.detail else ''}"
    held = "kept" if box.reclaimable else "held" if box.owner and box.health is State.READY else "free"
    title = f"<b>slice {box.index}</b> {box.owner} {muted(box.instance_type).html}"
    words = f"{toned(tone, box.word).html} {muted(box.detail).html}"
    return (
        f'<div class="pw-slice pw-{tone} pw-of-{box.owner.name.lower()} pw-{held}" role="listitem" '
        f'aria-label="{escape(label)}"><div>{title}</div><div>{words}</div>{_hosts(box)}</div>'
    )


def _hosts(box: Box) -> str:
    try:
        kind = tpu.parse_instance_type(box.instance_type)
    except ConfigError:
        # A newer service may have instance types that this version does not know: show its text without chips.
        return ""
    chips = kind.chips_per_host if kind.hosts <= _MANY_HOSTS else 1
    columns = min(chips, 4) if chips != 4 else 2
    hosts = []
    for host in range(kind.hosts):
        # If a slice is down and the failed hosts are known, only those are drawn as failed.
        tone = Tone.NONE if box.health is State.DOWN and box.down and host not in box.down else box.health.tone
        grid = '<div class="pw-chip"></div>' * chips
        hosts.append(
            f'<div class="pw-host pw-{tone}" title="host {host}: {count(kind.chips_per_host, "chip")}" '
            f'style="grid-template-columns: repeat({columns}, auto)">{grid}</div>'
        )
    return f'<div class="pw-hosts" aria-hidden="true">{"".join(hosts)}</div>'
