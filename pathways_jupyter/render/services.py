"""Services as a table, one service in full, the steps of a service's start, and who has held their chips."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from pathways_jupyter.base import tpu
from pathways_jupyter.base.sentences import Face, worded
from pathways_jupyter.base.text import count, some
from pathways_jupyter.render import text
from pathways_jupyter.render.parts import (
    Tone,
    as_of,
    card,
    code,
    fields,
    head,
    indented,
    line,
    muted,
    remarks,
    spaced,
    table,
    toned,
)
from pathways_jupyter.render.slices import TONES
from pathways_jupyter.render.view import View, drawn, listing
from pathways_jupyter.service import names
from pathways_jupyter.service.checks import Finding
from pathways_jupyter.service.rollout import RolloutStep, StepKind
from pathways_jupyter.service.status import Overview
from pathways_jupyter.service.usage import NOT_RECORDED, Usage

_HEADERS = ("", "service", "namespace", "slices", "type", "ready", "in use", "by", "JAX", "age", "address")
_USAGE_HEADERS = ("user", "session", "service", "queue", "slices", "held for", "chip-hours", "")
_DOCTOR = "pathways-jupyter doctor names them."
_UNCERTAIN = "~ Counted from the proxy's start: time in which it waited for slices may be included."
_STEPS = {StepKind.DONE: Tone.OK, StepKind.WAIT: Tone.WAIT, StepKind.WARN: Tone.WARN}


def view(services: Sequence[Overview]) -> View:
    """All of `services`, one a line."""
    now = time.time()
    rows, notes = [], []
    for each in services:
        rows.append(
            (
                toned(TONES[each.state]),
                code(each.name),
                each.namespace,
                str(each.slices),
                each.instance_type or "?",
                str(each.ready),
                str(each.in_use),
                some(each.users) or "-",
                each.jax or "?",
                text.duration(now - each.created),
                each.address,
            )
        )
        if each.reason:
            notes.append(f"{each.name}: {each.reason}.")
    return listing(
        list(services),
        table(_HEADERS, rows),
        *(line(toned(Tone.WARN), note) for note in notes),
        none="There is no Pathways service that you may see.",
    )


def details(service: Overview, cluster: str = "") -> View:
    """One service in full, and the line that connects to it.

    Args:
      cluster: The options that select its cluster.
    """
    now = time.time()
    hosts = count(service.hosts_per_slice, "host")
    pairs = [
        ("namespace", service.namespace),
        ("address", service.address),
        ("slices", f"{service.slices} of {service.instance_type or 'an unknown type'}, {hosts} each"),
        ("ready", f"{service.ready} of {service.slices}, {service.free} free"),
        ("in use by", "; ".join(service.users) or ("no session" if not service.in_use else "")),
        ("image", service.image),
        ("JAX", service.jax or "not in the image's tag"),
        ("sidecar", service.sidecar_image or "none: no colocated Python"),
        ("age", text.duration(now - service.created)),
    ]
    tone = TONES[service.state]
    state = f"{service.state}{f' ({service.reason})' if service.reason else ''}"
    kind = f" --tpu {service.instance_type}=1" if service.instance_type else ""
    connect = f"%pathways connect --namespace {service.namespace} --service {service.name}{kind} {cluster}".rstrip()
    shown = card(
        tone,
        head(service.name, toned(tone, state), mark=tone.mark),
        fields(pairs),
        indented(line(muted("In a notebook:"), code(connect))),
    )
    return drawn(service, shown, as_of())


def step(found: Finding | RolloutStep, face: Face) -> str:
    """Return a finding of the checks, or a step of a start, as one line; advice on a second one."""
    if isinstance(found, RolloutStep):
        return f"{_STEPS[found.kind].mark} {found.message}"
    advice = f"\n  {worded(found.hint, face)}" if found.hint else ""
    return f"{Tone(found.level).mark} {found.name}: {found.message}{advice}"


def usage(found: Usage) -> View:
    """Return chip-hours by proxy and by user as a table; its value is what ``--json`` prints."""
    rows = []
    for each in found.proxies:
        state = "waits for slices" if each.waits else "" if each.ended is None else "ended"
        rows.append(
            (
                each.user or each.job,
                each.session or "-",
                names.service_of(each.service)[0] or each.service,
                each.queue or "-",
                tpu.format_instances(each.instances),
                text.duration(each.seconds),
                "not known" if each.chip_hours is None else f"{'' if each.certain else '~'}{each.chip_hours:.2f}",
                text.reclaimable(each.reclaimable, found.until) if each.reclaimable is not None else state,
            )
        )
    notes = []
    if found.odd:
        notes.append(f"{count(found.odd, 'Job or Lease', 'Jobs or Leases')} cannot be read in full; {_DOCTOR}")
    if any(not each.certain and not each.waits for each in found.proxies):
        notes.append(_UNCERTAIN)
    notes.append(NOT_RECORDED)
    span, users = f"Since {text.moment(found.since)}", found.by_user()
    shown = [line(f"{span}: no proxies.")]
    if rows:
        totals = [f"{user}: {hours:.2f} chip-hours" for user, hours in users.items()]
        shown = [line(f"{span}:"), table(_USAGE_HEADERS, rows), spaced(remarks(totals))]
    value = {
        "since": found.since,
        "until": found.until,
        "users": users,
        "proxies": [{**dataclasses.asdict(each), "chip_hours": each.chip_hours} for each in found.proxies],
        "not_recorded": NOT_RECORDED,
        "odd": found.odd,
    }
    return drawn(value, *shown, spaced(remarks(notes)))
