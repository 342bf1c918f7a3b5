"""What the commands about faults do, for the magic and the command line: they differ only in what they aim at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pathways_jupyter import config, entry
from pathways_jupyter.commands.declaration import CLUSTER
from pathways_jupyter.commands.elastic import FAULTS
from pathways_jupyter.elastic import fault_targets, faults
from pathways_jupyter.elastic.fault_targets import Target
from pathways_jupyter.elastic.faults import Fault, Plan
from pathways_jupyter.errors import ConfigError

_PLACE = {option.name for option in CLUSTER}

Values = Mapping[str, Any]


def inject(target: Target, values: Values) -> Fault:
    """Inject the fault that the arguments ask for.

    Raises:
      ConfigError: The arguments make no sense, or the slice is not one of the target's.
      PathwaysError: The cluster could not be reached, or refused.
    """
    what = values.get("what")
    if what not in FAULTS:
        raise ConfigError(
            f"There is no fault {what!r}." if what else "Which fault?", hint=f"There are: {', '.join(FAULTS)}."
        )
    number = entry.whole_number("the slice", values.get("slice") or "(nothing)")
    yes = bool(values.get("yes"))
    if what == "slice-down":
        return faults.slice_down(target, number, seconds=entry.time("--for", values.get("seconds"), 0.0), yes=yes)
    if what == "drain-node":
        seconds = _some_time("--for", values.get("seconds"), faults.DRAIN_SECONDS)
        return faults.drain_node(target, number, seconds=seconds, yes=yes)
    return faults.slow(target, number, seconds=_some_time("--for", values.get("seconds"), faults.SLOW_SECONDS))


def plan(values: Values, seed: int) -> Plan:
    """Return the faults at random that the arguments ask for.

    Args:
      seed: Used if none is given.

    Raises:
      ConfigError: They make no sense.
    """
    if values.get("what"):
        raise ConfigError(
            "A random injection chooses the faults itself.", hint=f"Leave out {values['what']}, or --random."
        )
    times = entry.whole_number("--times", values["times"]) if values.get("times") is not None else None
    if times == 0:
        raise ConfigError("There must be at least one fault.", hint="Leave out --times for faults until heal.")
    return Plan(
        every=_some_time("--every", values.get("every"), 60.0),
        seconds=_some_time("--for", values.get("seconds"), 10.0),
        seed=entry.whole_number("--seed", values["seed"]) if values.get("seed") is not None else seed,
        times=times,
        yes=bool(values.get("yes")),
    )


def _some_time(option: str, value: Any, default: float) -> float:
    """Parse a time that is more than 0; `default` if it was not given."""
    seconds = entry.time(option, value, default)
    if not seconds:
        raise ConfigError(f"{option} must be more than 0 s.", hint=f"For example: {option} 30s, or {option} 2m.")
    return seconds


def heal(target: Target, slice_: str | None) -> tuple[str, ...]:
    """End the faults of a slice, or of all; return the nodes that take pods again.

    Raises:
      ConfigError: The slice is not one of the target's.
      PathwaysError: The cluster could not be reached, or refused.
    """
    number = entry.whole_number("the slice", slice_) if slice_ is not None else None
    return faults.heal(target, number)


def target(values: Values) -> Target:
    """Return what a command outside of a notebook aims at: a job, or a session of this machine.

    Raises:
      ConfigError: Both a job and a session are given.
      SessionError: There is no such session.
    """
    if not values.get("job"):
        return fault_targets.of_record(entry.find_session(values.get("session") or ""))
    if values.get("session"):
        raise ConfigError("Either a session or a job can be hit.", hint="Leave out --session or --job.")
    place = {name: value for name, value in config.canonical(values).items() if name in _PLACE}
    return fault_targets.of_job(str(values["job"]), entry.where(place))


def healed(nodes: tuple[str, ...]) -> str:
    """Return what :func:`heal` did, in a sentence."""
    if not nodes:
        return "Healed; no node was kept from pods."
    return f"Healed: {', '.join(nodes)} {'takes' if len(nodes) == 1 else 'take'} pods again."
