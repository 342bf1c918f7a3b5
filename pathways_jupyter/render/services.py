"""Services as a table, one service in full, and the steps of a service's start."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape

from pathways_jupyter.base.hints import Face
from pathways_jupyter.base.sentences import worded
from pathways_jupyter.render import html, text
from pathways_jupyter.render.slicemap import MARKS, TONES
from pathways_jupyter.render.text import Mark
from pathways_jupyter.render.view import View
from pathways_jupyter.service.checks import Finding, Level
from pathways_jupyter.service.overview import Overview
from pathways_jupyter.service.rollout import Step, StepKind

_HEADERS = ("", "service", "namespace", "slices", "type", "ready", "in use", "by", "JAX", "age", "address")
_NONE = "There is no Pathways service that you may see."
_STEPS = {StepKind.DONE: Mark.OK, StepKind.WAIT: Mark.WAIT, StepKind.WARN: Mark.WARN}
_LEVELS = {Level.OK: Mark.OK, Level.WARN: Mark.WARN, Level.FAIL: Mark.FAIL}


def view(services: Sequence[Overview], *, now: float | None = None) -> View:
    """All of `services`, one a line; `now` is in seconds since the epoch, the clock's when left out."""
    now = time.time() if now is None else now
    if not services:
        return View([], _NONE, html.page(html.line(html.muted(_NONE)), html.as_of(now)))
    rows = [_row(each, now) for each in services]
    notes = [f"{Mark.WARN} {note}" for each in services for note in _notes(each)]
    rich = [
        [html.toned(TONES[each.state], row[0]), html.code(row[1]), *map(escape, row[2:])]
        for each, row in zip(services, rows, strict=True)
    ]
    return View(
        list(services),
        "\n".join([text.table(_HEADERS, rows), *notes]),
        html.page(html.table(_HEADERS, rich), *(html.line(escape(each)) for each in notes), html.as_of(now)),
    )


def details(service: Overview, *, now: float | None = None) -> View:
    """One service in full, and the line that connects to it."""
    now = time.time() if now is None else now
    state = f"{service.state}{f' ({service.reason})' if service.reason else ''}"
    hosts = text.count(service.hosts_per_slice, "host")
    pairs = [
        ("state", state),
        ("namespace", service.namespace),
        ("address", service.address),
        ("found by", _source(service)),
        ("slices", f"{service.slices} of {service.instance_type or 'an unknown type'}, {hosts} each"),
        ("ready", f"{service.ready} of {service.slices}, {service.free} free"),
        ("in use by", "; ".join(service.users) or ("no session" if not service.in_use else "")),
        ("image", service.image),
        ("JAX", service.jax or "not in the image's tag"),
        ("sidecar", service.sidecar_image or "none: no colocated Python"),
        ("age", text.duration(now - service.created)),
    ]
    kind = f" --tpu {service.instance_type}=1" if service.instance_type else ""
    line = f"%pathways connect --namespace {service.namespace} --service {service.name}{kind}"
    return View(
        service,
        f"{MARKS[service.state]} {service.name}\n{text.fields(pairs)}\n  In a notebook: {line}",
        html.page(
            html.card(
                TONES[service.state],
                html.head(service.name, html.toned(TONES[service.state], state)),
                html.fields(pairs[1:]),
                html.line(html.muted("In a notebook:"), html.code(line)),
            ),
            html.as_of(now),
        ),
    )


def line(found: Finding | Step, face: Face) -> str:
    """A finding of the checks, or a step of a start, as one line; advice on a second one."""
    if isinstance(found, Step):
        return f"{_STEPS[found.kind]} {found.message}"
    advice = f"\n  {worded(found.hint, face)}" if found.hint else ""
    return f"{_LEVELS[found.level]} {found.name}: {found.message}{advice}"


def _row(service: Overview, now: float) -> tuple[str, ...]:
    return (
        MARKS[service.state],
        service.name,
        service.namespace,
        str(service.slices),
        service.instance_type or "?",
        str(service.ready),
        str(service.in_use),
        text.some(service.users) or "-",
        service.jax or "?",
        text.duration(now - service.created),
        service.address,
    )


def _notes(service: Overview) -> list[str]:
    notes = [f"{service.name}: {service.reason}."] if service.reason else []
    if service.disagrees:
        notes.append(f"{service.name}: its workers connect to {service.seen}, not to {service.address}.")
    return notes


def _source(service: Overview) -> str:
    if not service.seen:
        return "its JobSet (no worker's log could be read to compare)"
    if service.disagrees:
        return f"its JobSet; its workers' log says {service.seen}"
    return "its JobSet, and its worker's log says the same"
