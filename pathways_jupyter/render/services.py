"""Services as a table, one service in full, and the steps of a service's start."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pathways_jupyter.base.sentences import Face, worded
from pathways_jupyter.base.text import count, some
from pathways_jupyter.base.tones import Tone
from pathways_jupyter.render import text
from pathways_jupyter.render.parts import as_of, card, code, fields, head, indented, line, muted, table, toned
from pathways_jupyter.render.view import View, drawn, listing
from pathways_jupyter.service.checks import Finding
from pathways_jupyter.service.rollout import RolloutStep
from pathways_jupyter.service.status import Overview

_HEADERS = ("", "service", "namespace", "slices", "type", "ready", "in use", "by", "JAX", "age", "address")


def view(services: Sequence[Overview]) -> View:
    """All of `services`, one a line."""
    now = time.time()
    rows, notes = [], []
    for each in services:
        rows.append(
            (
                toned(each.state.tone),
                code(each.name),
                each.namespace,
                str(each.slices),
                each.instance_type or "?",
                str(each.ready),
                str(each.in_use),
                some(each.users) or "-",
                each.jax or "?",
                text.duration(now - each.clock_ahead - each.created),
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
    now = time.time() - service.clock_ahead
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
    tone = service.state.tone
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


def step(progress: Finding | RolloutStep, face: Face) -> str:
    """Return a finding of the checks, or a step of a start, as one line; advice on a second one."""
    if isinstance(progress, RolloutStep):
        return f"{progress.tone.mark} {progress.message}"
    advice = f"\n  {worded(progress.hint, face)}" if progress.hint else ""
    return f"{progress.level.mark} {progress.name}: {progress.message}{advice}"
