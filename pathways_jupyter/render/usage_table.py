"""Chip-hours by proxy and by user, as a table."""

from __future__ import annotations

import dataclasses
from html import escape
from typing import Any

from pathways_jupyter.base import tpu
from pathways_jupyter.render import html, text
from pathways_jupyter.render.sessions import service_name
from pathways_jupyter.render.view import View
from pathways_jupyter.service.usage import NOT_RECORDED, Held, Usage

_HEADERS = ("user", "session", "service", "slices", "held for", "chip-hours", "")
_DOCTOR = "pathways-jupyter doctor names them."
_UNCERTAIN = "~ Counted from the proxy's start: time in which it waited for slices may be included."


def view(usage: Usage) -> View:
    """The table; its value is what ``--json`` prints."""
    rows = [_row(each, usage.until) for each in usage.proxies]
    totals = [f"{user}: {hours:.2f} chip-hours" for user, hours in usage.by_user().items()]
    span = f"Since {text.moment(usage.since)}"
    notes = [NOT_RECORDED]
    if any(not each.certain and not each.waits for each in usage.proxies):
        notes.insert(0, _UNCERTAIN)
    if usage.odd:
        notes.insert(0, f"{text.count(usage.odd, 'Job or Lease', 'Jobs or Leases')} cannot be read in full; {_DOCTOR}")
    lines = [f"{span}:", text.table(_HEADERS, rows), "", *totals] if rows else [f"{span}: no proxies."]
    rich = [html.line(html.muted(each)) for each in (*totals, *notes)]
    plain = "\n".join([*lines, "", *notes])
    return View(_value(usage), plain, html.page(html.table(_HEADERS, [[*map(escape, row)] for row in rows]), *rich))


def _row(each: Held, now: float) -> tuple[str, ...]:
    hours = "not known" if each.chip_hours is None else f"{'' if each.certain else '~'}{each.chip_hours:.2f}"
    return (
        each.user or each.job,
        each.session or "-",
        service_name(each.service),
        tpu.format_instances(each.instances),
        text.duration(each.seconds),
        hours,
        _state(each, now),
    )


def _state(each: Held, now: float) -> str:
    if each.reclaimable is not None:
        return text.reclaimable(each.reclaimable, now)
    return "waits for slices" if each.waits else "" if each.ended is None else "ended"


def _value(usage: Usage) -> dict[str, Any]:
    return {
        "since": usage.since,
        "until": usage.until,
        "users": usage.by_user(),
        "proxies": [{**dataclasses.asdict(each), "chip_hours": each.chip_hours} for each in usage.proxies],
        "not_recorded": NOT_RECORDED,
        "odd": usage.odd,
    }
