"""``%pathways elastic``: show the training run of this notebook, and inject faults into it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pathways_jupyter.actions import elastic as actions
from pathways_jupyter.actions.shell import Contradiction, Values
from pathways_jupyter.base.errors import ConfigError, PathwaysError, SessionError
from pathways_jupyter.base.events import SessionState
from pathways_jupyter.base.text import count, parse_path, parse_seconds, parse_whole_number
from pathways_jupyter.elastic import export as exporting
from pathways_jupyter.elastic import fault_targets
from pathways_jupyter.elastic.faults import Fault
from pathways_jupyter.elastic.run_registry import RUNS
from pathways_jupyter.magics.notebook_session import NotebookSession
from pathways_jupyter.render import elastic as render
from pathways_jupyter.render.view import View, said

_POLL_SECONDS = 0.02
"""Interval at which a fault checks whether its step has been reached."""


@dataclass(eq=False)
class _Plan:
    """A fault to come in a slice, by the number that the user gave."""

    slice: str
    cancelled: threading.Event = field(default_factory=threading.Event)

    def end(self) -> bool:
        """Inject or cancel it, whichever comes first: return whether it was still to come."""
        try:
            _PLANS.remove(self)
        except ValueError:
            return False
        self.cancelled.set()
        return True


_PLANS: list[_Plan] = []


def show(notebook: NotebookSession, values: Values) -> Any:
    """Show the training run of this notebook; live in a kernel."""
    metrics = values.get("metrics") or ()
    if notebook.screen.in_place:
        from pathways_jupyter.widgets.live_views import ElasticPanel

        return ElasticPanel(notebook.shell, metrics)
    return render.view(RUNS.shown(), metrics)


def inject(notebook: NotebookSession, values: Values) -> View:
    """Inject a fault into this session, now or later."""
    session = notebook.need()
    delay = parse_seconds("--after", values.get("after", 0.0))
    at_step = parse_whole_number("--at-step", values["at_step"]) if values.get("at_step") is not None else None
    if delay and at_step is not None:
        raise Contradiction("--after and --at-step say when; both cannot be true.", hint="Leave one of them out.")

    def prepared() -> Callable[[], Fault]:
        return actions.prepare(fault_targets.of_record(session.record), values)

    # Before it is promised for later: then it could only be reported that it was not possible.
    fault = prepared()
    if not delay and at_step is None:
        return said(str(fault()))

    plan = _Plan(str(values["slice"]))

    def later() -> None:
        plan.cancelled.wait(delay)
        while at_step is not None and session.state is not SessionState.CLOSED and not _has_done(at_step):
            if plan.cancelled.wait(_POLL_SECONDS):
                break
        if not plan.end():
            return
        try:
            # Prepared again: a slice that the session held before may be another user's by now.
            notebook.notify([str(prepared()())])
        except PathwaysError as error:
            notebook.notify([str(error), error.advice(error.face)])

    # A daemon, so that a kernel that ends does not wait for it.
    _PLANS.append(plan)
    threading.Thread(target=later, name="elastic-fault", daemon=True).start()
    when = f"in {delay:g} s" if at_step is None else f"when a run has done {at_step} steps"
    return said(f"{values.get('fault')} will be injected {when}, unless %pathways elastic heal comes before.")


def _has_done(steps: int) -> bool:
    latest = RUNS.latest
    return latest is not None and latest.ended is None and latest.done >= steps


def heal(notebook: NotebookSession, values: Values) -> View:
    """End the faults of a slice, or of all, and cancel those that are still to come."""
    slice_ = values.get("slice")
    healed = actions.end_faults(fault_targets.of_record(notebook.need().record), slice_)
    cancelled = sum(plan.end() for plan in list(_PLANS) if slice_ in (None, plan.slice))
    return said(f"{healed.text} Cancelled: {count(cancelled, 'fault')} to come.") if cancelled else healed


def export(notebook: NotebookSession, values: Values) -> View:
    """Write the run to a file."""
    shown = RUNS.shown()
    if shown is None:
        raise SessionError("No elastic training has run in this notebook yet.", hint="See help(elastic.train_loop).")
    path = parse_path(values.get("file") or "elastic.json")
    try:
        path.write_text(exporting.to_json(shown), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.", hint="Choose another file.") from error
    return said(f"{path} was written.")
