"""Sessions on this machine, as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from pathlib import PurePath

from pathways_jupyter import tpu
from pathways_jupyter.events import SessionState
from pathways_jupyter.render import html, text
from pathways_jupyter.render.html import Tone
from pathways_jupyter.render.view import View
from pathways_jupyter.session.registry import SessionRecord

TONES = {
    SessionState.STARTING: Tone.WAIT,
    SessionState.WAITING: Tone.WAIT,
    SessionState.CONNECTED: Tone.OK,
    SessionState.DEGRADED: Tone.WAIT,
    SessionState.INTERRUPTED: Tone.WAIT,
    SessionState.LOST: Tone.FAIL,
    SessionState.CLOSING: Tone.WAIT,
    SessionState.CLOSED: Tone.NONE,
    SessionState.FAILED: Tone.FAIL,
}

_HEADERS = ("session", "state", "for", "slices", "service", "notebook", "age", "pid")
_NONE = "No sessions on this machine."


def view(records: Sequence[SessionRecord], *, mine: str = "", now: float | None = None) -> View:
    """The table.

    Args:
      records: What to show.
      mine: Id of the caller's own session; it is marked.
      now: Seconds since the epoch; the clock's when left out.
    """
    now = time.time() if now is None else now
    if not records:
        return View(list(records), _NONE, html.page(html.line(html.muted(_NONE)), html.as_of(now)))
    plain = [_row(record, mine, now) for record in records]
    rich = [
        [html.code(row[0]), html.toned(TONES[record.state], row[1]), *map(escape, row[2:])]
        for record, row in zip(records, plain, strict=True)
    ]
    return View(list(records), text.table(_HEADERS, plain), html.page(html.table(_HEADERS, rich), html.as_of(now)))


def state(record: SessionRecord) -> str:
    """A session's state in words: ``connected``, or ``degraded, 1 of 2 slices``."""
    if record.state is not SessionState.DEGRADED:
        return str(record.state)
    return f"{record.state}, {sum(each.up for each in record.slices)} of {text.count(len(record.slices), 'slice')}"


def service_name(address: str) -> str:
    """The service's name where `address` is a head's DNS name below it; else the host."""
    host = address.partition(":")[0]
    return host.partition(".")[2].partition(".")[0] or host


def _row(record: SessionRecord, mine: str, now: float) -> tuple[str, ...]:
    # Where Jupyter gives no path it is the kernel, or the process of a script or a terminal.
    process = f"kernel {record.kernel_id[:8]}" if record.kernel_id else f"process {record.kernel_pid}"
    owner = PurePath(record.notebook).name or record.program or process
    if not record.is_here:
        owner += f" on {record.host}"
    return (
        record.id,
        state(record),
        text.duration(now - record.state_since),
        tpu.format_instances(record.instances),
        f"job {record.pathways_job}" if record.pathways_job else service_name(record.service),
        f"{owner} (this one)" if record.id == mine else owner,
        text.duration(now - record.created),
        str(record.pid),
    )
