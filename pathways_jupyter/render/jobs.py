"""Jobs: a table of all, and everything about one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape

from pathways_jupyter.render import html, text
from pathways_jupyter.render.html import Tone
from pathways_jupyter.render.view import View
from pathways_jupyter.service.jobs import JobPicture
from pathways_jupyter.service.pathwaysjob import conditions
from pathways_jupyter.service.pathwaysjob.description import JobInfo

TONES: Mapping[str, Tone] = {
    conditions.PENDING: Tone.WAIT,
    conditions.RUNNING: Tone.OK,
    conditions.SUSPENDED: Tone.WAIT,
    conditions.COMPLETED: Tone.OK,
    conditions.FAILED: Tone.FAIL,
}
_MARKS = {
    conditions.PENDING: text.Mark.WAIT,
    conditions.RUNNING: text.Mark.OK,
    conditions.SUSPENDED: text.Mark.WAIT,
    conditions.COMPLETED: text.Mark.OK,
    conditions.FAILED: text.Mark.FAIL,
}
_HEADERS = ("job", "state", "slices", "restarts", "kind", "age")
_PODS = ("pod", "role", "state", "restarts", "node")
_EVENTS = ("ago", "about", "reason", "message")
_NONE = "No jobs in this namespace."


def view(found: Sequence[JobInfo], *, now: float | None = None) -> View:
    """The table of jobs.

    Args:
      now: Seconds since the epoch; the clock's when left out.
    """
    now = time.time() if now is None else now
    if not found:
        return View([], _NONE, html.page(html.line(html.muted(_NONE)), html.as_of(now)))
    plain = [_row(job, now) for job in found]
    rich = [
        [html.code(row[0]), html.toned(TONES[job.state], row[1]), *map(escape, row[2:])]
        for job, row in zip(found, plain, strict=True)
    ]
    return View(list(found), text.table(_HEADERS, plain), html.page(html.table(_HEADERS, rich), html.as_of(now)))


def details(picture: JobPicture, *, note: str = "", now: float | None = None) -> View:
    """Everything about one job.

    Args:
      note: A remark below it, for example why it is no longer updated.
      now: As for :func:`view`.
    """
    now = time.time() if now is None else now
    job = picture.job
    pods = [(pod.name, pod.role, pod.state, str(pod.restarts), pod.node) for pod in picture.pods]
    events = [
        (text.duration(max(0.0, now - each.time)), each.about, each.reason, each.message) for each in picture.events
    ]
    parts = [line(job)]
    # Only the state in its tone, which does not wrap: a reason may be long.
    rich = [html.line(html.code(job.name), html.toned(TONES[job.state], job.state.lower()) + escape(_about(job)))]
    for headers, rows in ((_PODS, pods), (_EVENTS, events)):
        if rows:
            parts.append(text.table(headers, rows))
            rich.append(html.table(headers, [list(map(escape, row)) for row in rows]))
    if note:
        parts.append(note)
    return View(picture, "\n\n".join(parts), html.page(*rich, html.as_of(now, note)))


def line(job: JobInfo) -> str:
    """One line about a job, for progress."""
    return f"{_MARKS[job.state]} Job {job.name}: {job.state.lower()}{_about(job)}"


def _about(job: JobInfo) -> str:
    """What follows the state in a sentence about a job."""
    slices = f"{text.count(job.slices, 'slice')} of {job.instance_type}" if job.instance_type else "unknown slices"
    headless = ", headless" if job.headless else ""
    restarts = f", {text.count(job.restarts, 'restart')}" if job.restarts else ""
    reason = f" ({job.reason})" if job.reason else ""
    return f"{reason}, {slices}{headless}{restarts}"


def _row(job: JobInfo, now: float) -> tuple[str, ...]:
    slices = f"{job.instance_type}={job.slices}" if job.instance_type else "?"
    return (
        job.name,
        job.state.lower(),
        slices,
        str(job.restarts),
        f"{job.kind}{', headless' if job.headless else ''}",
        text.duration(max(0.0, now - job.created)),
    )
