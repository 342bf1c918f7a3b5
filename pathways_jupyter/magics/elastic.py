"""``%pathways elastic``: show the training run of this notebook, and inject faults into it."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pathways_jupyter import entry, fault_requests
from pathways_jupyter.elastic import export, fault_targets
from pathways_jupyter.elastic import record as records
from pathways_jupyter.elastic.faults import Fault, RandomFaults
from pathways_jupyter.errors import ConfigError, PathwaysError, SessionError
from pathways_jupyter.magics.notebook_session import Connection
from pathways_jupyter.render import elastic as picture
from pathways_jupyter.render.view import View

if TYPE_CHECKING:
    from pathways_jupyter.elastic.fault_targets import Target

Values = Mapping[str, Any]

_LOOK_SECONDS = 0.02
"""Interval at which a fault looks whether its step has been reached."""

_random: RandomFaults | None = None


def run(connection: Connection, values: Values) -> Any:
    """Show the run; with an action, do it and say what was done.

    Raises:
      ConfigError: The arguments make no sense.
      PathwaysError: The cluster could not be reached, or refused.
    """
    action = values.get("action")
    fault_requests.check(values)
    if action is None:
        return _panel(connection, values.get("metrics") or ())
    if action == "export":
        return _export(str(values.get("what") or "elastic.json"))
    target = fault_targets.of_session(connection.need())
    if action == "heal":
        if _random is not None and values.get("what") is None:
            _random.stop()
        return picture.said(fault_requests.healed(fault_requests.heal(target, values.get("what"))))
    if values.get("random"):
        return _inject_random(connection, target, values)
    return _inject(connection, target, values)


def _panel(connection: Connection, metrics: Sequence[str]) -> Any:
    if connection.screen.in_place:
        from pathways_jupyter.widgets.elastic import ElasticPanel

        return ElasticPanel(connection.shell, metrics)
    shown = records.shown()
    return picture.view(shown, metrics) if shown is not None else picture.none()


def _inject(connection: Connection, target: Target, values: Values) -> View:
    delay = entry.time("--after", values.get("after"), 0.0)
    at_step = entry.whole_number("--at-step", values["at_step"]) if values.get("at_step") is not None else None
    if delay and at_step is not None:
        raise ConfigError("--after and --at-step say when; both cannot be true.", hint="Leave one of them out.")
    # Before it is promised for later: then it could only be reported that it was not possible.
    inject = fault_requests.prepared(target, values)
    if not delay and at_step is None:
        return picture.said(str(inject()))

    def later() -> None:
        time.sleep(delay)
        while at_step is not None and not _has_reached(at_step):
            time.sleep(_LOOK_SECONDS)
        try:
            connection.notify([str(inject())])
        except PathwaysError as error:
            connection.notify([str(error), error.hint])

    # A daemon, so that a kernel that ends does not wait for it.
    threading.Thread(target=later, name="elastic-fault", daemon=True).start()
    when = f"in {delay:g} s" if at_step is None else f"when a run has done {at_step} steps"
    return picture.said(f"{values.get('what')} will be injected {when}.")


def _has_reached(step: int) -> bool:
    """Whether a run goes on that has done so many steps."""
    latest = records.latest()
    return latest is not None and latest.ended is None and latest.done >= step


def _inject_random(connection: Connection, target: Target, values: Values) -> View:
    global _random
    if _random is not None and _random.running:
        raise SessionError("Faults are already being injected at random.", hint="%pathways elastic heal ends that.")
    plan = fault_requests.plan(values, seed=secrets.randbelow(10**6))

    def said(what: Fault | PathwaysError) -> None:
        connection.notify([str(what)])

    _random = RandomFaults(target, plan, said)
    often = f"{plan.times} times" if plan.times is not None else "until %pathways elastic heal"
    return picture.said(
        f"Faults of {plan.seconds:g} s at random on slices {', '.join(map(str, sorted(target.slices or ())))}, "
        f"every {plan.every:g} s, {often} (--seed {plan.seed})."
    )


def _export(file: str) -> View:
    shown = records.shown()
    if shown is None:
        raise SessionError("No elastic training has run in this notebook yet.", hint="See help(elastic.train_loop).")
    path = Path(file).expanduser()
    try:
        path.write_text((export.to_trace if file.endswith(".trace.json") else export.to_json)(shown), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.", hint="Choose another file.") from error
    return picture.said(f"{path} was written.")
