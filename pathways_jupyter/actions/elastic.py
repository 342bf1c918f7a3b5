"""``elastic inject`` and ``heal``: faults on purpose in the slices of a session or a job, and their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pathways_jupyter.actions import cluster
from pathways_jupyter.actions.shell import Action, Shell, Values
from pathways_jupyter.base.errors import ConfigError
from pathways_jupyter.base.sentences import advice
from pathways_jupyter.base.text import parse_seconds, parse_whole_number
from pathways_jupyter.elastic import fault_targets, faults
from pathways_jupyter.elastic.fault_targets import FaultTarget
from pathways_jupyter.elastic.faults import Fault
from pathways_jupyter.render.view import View, said


def inject(shell: Shell, values: Values) -> View:
    """Inject one fault, now."""
    fault = prepare(target(values), values)()
    return said(str(fault), fault)


def prepare(target: FaultTarget, values: Values) -> Callable[[], Fault]:
    """Return what injects the fault that the arguments ask for, now or later; contacts nothing.

    Raises:
      ConfigError: The arguments make no sense, or the slice is not one of the target's.
    """
    fault, number, yes = values["fault"], _slice(values["slice"]), bool(values.get("yes"))
    time = values.get("seconds")
    if fault == "slice-down":
        act = partial(faults.slice_down, target, number, seconds=parse_seconds("--for", time or 0.0), yes=yes)
    else:
        seconds = parse_seconds("--for", faults.DRAIN_SECONDS if time is None else time)
        if not seconds:
            raise ConfigError("A fault must last longer than 0 s.", hint="For example: 30s, or 2m.")
        act = partial(faults.drain_node, target, number, seconds=seconds, yes=yes)
    target.find(number)
    return act


def heal(shell: Shell, values: Values) -> View:
    """End the injected faults of a slice, or of all slices."""
    return end_faults(target(values), values.get("slice"))


def end_faults(target: FaultTarget, slice_: str | None) -> View:
    """End the faults of a slice of the target, or of all; return the nodes that take pods again.

    Raises:
      ConfigError: The slice is not one of the target's.
      PathwaysError: The cluster could not be reached, or refused.
    """
    nodes = faults.heal(target, _slice(slice_) if slice_ is not None else None)
    done = f"{', '.join(nodes)} {'takes' if len(nodes) == 1 else 'take'} pods again" if nodes else ""
    return said(f"Healed: {done}." if done else "Healed; no node was kept from pods.", {"nodes": nodes})


def target(values: Values) -> FaultTarget:
    """Return what a command outside of a notebook aims at: a job, or a session of this machine.

    Raises:
      ConfigError: Both a job and a session are given.
      SessionError: There is no such session.
    """
    if not values.get("job"):
        return fault_targets.of_record(cluster.find_session(values.get("session") or ""))
    if values.get("session"):
        raise ConfigError("Either a session or a job can be hit.", hint=advice("Leave out --session or {job}."))
    return FaultTarget(cluster.where(values), str(values["job"]))


def _slice(value: str) -> int:
    if not value.isdecimal():
        raise ConfigError(f"A slice is a whole number, not {value}.", hint="For example: 1.")
    return parse_whole_number("The slice", value)


ACTIONS: Mapping[str, Action] = {"elastic inject": inject, "elastic heal": heal}
