"""Chip-hours by proxy and by user, as a table."""

from __future__ import annotations

import dataclasses

from pathways_jupyter.base import tpu
from pathways_jupyter.render import text
from pathways_jupyter.render.parts import line, remarks, spaced, table
from pathways_jupyter.render.view import View, drawn
from pathways_jupyter.service import names
from pathways_jupyter.service.usage import NOT_RECORDED, Usage

_HEADERS = ("user", "session", "service", "queue", "slices", "held for", "chip-hours", "")
_DOCTOR = "pathways-jupyter doctor names them."
_UNCERTAIN = "~ Counted from the proxy's start: time in which it waited for slices may be included."


def view(usage: Usage) -> View:
    """Return the table; its value is what ``--json`` prints."""
    rows = []
    for each in usage.proxies:
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
                text.reclaimable(each.reclaimable, usage.until) if each.reclaimable is not None else state,
            )
        )
    notes = []
    if usage.odd:
        notes.append(f"{text.count(usage.odd, 'Job or Lease', 'Jobs or Leases')} cannot be read in full; {_DOCTOR}")
    if any(not each.certain and not each.waits for each in usage.proxies):
        notes.append(_UNCERTAIN)
    notes.append(NOT_RECORDED)
    span, users = f"Since {text.moment(usage.since)}", usage.by_user()
    shown = [line(f"{span}: no proxies.")]
    if rows:
        totals = [f"{user}: {hours:.2f} chip-hours" for user, hours in users.items()]
        shown = [line(f"{span}:"), table(_HEADERS, rows), spaced(remarks(totals))]
    value = {
        "since": usage.since,
        "until": usage.until,
        "users": users,
        "proxies": [{**dataclasses.asdict(each), "chip_hours": each.chip_hours} for each in usage.proxies],
        "not_recorded": NOT_RECORDED,
        "odd": usage.odd,
    }
    return drawn(value, *shown, spaced(remarks(notes)))
