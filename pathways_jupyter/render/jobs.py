"""Jobs: a table of all, and everything about one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pathways_jupyter.base.text import count
from pathways_jupyter.render import text
from pathways_jupyter.render.parts import Part, code, joined, line, muted, remarks, spaced, table, toned
from pathways_jupyter.render.view import View, drawn, listing
from pathways_jupyter.service.jobs import JobDetails
from pathways_jupyter.service.pathwaysjob import conditions, obstacles
from pathways_jupyter.service.pathwaysjob.description import JobInfo


def view(jobs: Sequence[JobInfo]) -> View:
    """Return the table of jobs."""
    now = time.time()
    rows = [
        (
            code(job.name),
            toned(conditions.TONES[job.state], job.state.lower()),
            f"{job.instance_type}={job.slices}" if job.instance_type else "?",
            str(job.restarts),
            f"{job.kind}{', headless' if job.headless else ''}{_marks(job)}",
            text.duration(max(0.0, now - job.clock_ahead - job.created)),
        )
        for job in jobs
    ]
    shown = table(("job", "state", "slices", "restarts", "kind", "age"), rows)
    return listing(list(jobs), shown, none="No jobs in this namespace.")


def details(known: JobDetails, *, note: str = "") -> View:
    """Everything about one job.

    Args:
      note: A remark below it, for example why it is no longer updated.
    """
    job, now = known.job, time.time()
    # Only the state in its tone, which does not wrap: a reason may be long.
    state = joined(toned(conditions.TONES[job.state], job.state.lower()), _about(job))
    when = muted("" if known.outdated else f"as of {text.moment(now)}")
    shown = [Part(summary(job), line(code(job.name), state, when).html)]
    if pods := [(pod.name, pod.role, pod.state, str(pod.restarts), pod.node) for pod in known.pods]:
        shown.append(spaced(table(("pod", "role", "state", "restarts", "node"), pods)))
    events = [
        (text.duration(max(0.0, now - job.clock_ahead - each.time)), each.about, each.reason, each.message)
        for each in known.events
    ]
    if events:
        shown.append(spaced(table(("ago", "about", "reason", "message"), events)))
    reasons = [
        obstacles.explain_unset(job.name, job.unset) if job.unset else "",
        obstacles.explain_alts(job.name) if job.demands_alts else "",
    ]
    return drawn(
        known,
        *shown,
        spaced(remarks([each for each in (*reasons, known.unread, known.outdated, note) if each])),
    )


def summary(job: JobInfo) -> str:
    """One line about a job, for progress."""
    return f"{conditions.TONES[job.state].mark} Job {job.name}: {job.state.lower()}{_about(job)}"


def _marks(job: JobInfo) -> str:
    """Return what keeps notebooks from a job, in the words of a table."""
    return f"{', needs ALTS' if job.demands_alts else ''}{', variable not set' if job.unset else ''}"


def _about(job: JobInfo) -> str:
    """Return what follows the state in a sentence about a job."""
    slices = f"{count(job.slices, 'slice')} of {job.instance_type}" if job.instance_type else "unknown slices"
    headless = ", headless" if job.headless else ""
    queue = f", queue {job.queue}" if job.queue else ""
    restarts = f", {count(job.restarts, 'restart')}" if job.restarts else ""
    reason = f" ({job.reason})" if job.reason else ""
    return f"{reason}, {slices}{headless}{queue}{restarts}"
