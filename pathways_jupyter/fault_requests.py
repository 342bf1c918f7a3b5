"""What the commands about faults do, for the magic and the command line: they differ only in what they aim at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pathways_jupyter import config, entry
from pathways_jupyter.commands.declaration import CLUSTER
from pathways_jupyter.commands.elastic import AT_RANDOM, ELASTIC, FAULTS, USES
from pathways_jupyter.elastic import fault_targets, faults
from pathways_jupyter.elastic.fault_targets import Target
from pathways_jupyter.elastic.faults import Fault, Plan
from pathways_jupyter.errors import ConfigError

_PLACE = {option.name for option in CLUSTER}
_DOING = {
    "": "Showing a run",
    "export": "Exporting a run",
    "heal": "Healing",
    "inject": "Injecting one fault",
    AT_RANDOM: "Injecting faults at random",
}
_NOUNS = {
    "slice": "second slice",
    "metrics": "metric",
    "seconds": "duration",
    "after": "delay",
    "at_step": "step",
    "random": "choice at random",
    "every": "interval",
    "seed": "seed",
    "times": "number of faults",
    "yes": "confirmation",
}

Values = Mapping[str, Any]


def check(values: Values) -> None:
    """Refuse what the action of an ``elastic`` line would ignore.

    Raises:
      ConfigError: There is something that the action does not use.
    """
    action = str(values.get("action") or "")
    kind = AT_RANDOM if action == "inject" and values.get("random") else action
    ignored = [name for name in _NOUNS if name not in USES[kind] and values.get(name)]
    if not ignored:
        return
    name = ignored[0]
    flags = {option.name: option.flag for option in ELASTIC.options}
    hint = f"Leave out {flags.get(name, values[name])}"
    if action == "inject" and name in USES[AT_RANDOM]:
        hint += ", or add --random"
    if action == "heal" and name == "slice":
        hint += ", and heal it by a line of its own; without a slice, all are healed"
    raise ConfigError(f"{_DOING[kind]} takes no {_NOUNS[name]}.", hint=f"{hint}.")


def inject(target: Target, values: Values) -> Fault:
    """Inject the fault that the arguments ask for.

    Raises:
      ConfigError: The arguments make no sense, or the slice is not one of the target's.
      PathwaysError: The cluster could not be reached, or refused.
    """
    return prepared(target, values)()


def prepared(target: Target, values: Values) -> Callable[[], Fault]:
    """Return what injects the fault that the arguments ask for, now or later; contacts nothing.

    Raises:
      ConfigError: The arguments make no sense, or the slice is not one of the target's.
    """
    what = values.get("what")
    if what not in FAULTS:
        raise ConfigError(
            f"There is no fault {what!r}." if what else "Which fault?", hint=f"There are: {', '.join(FAULTS)}."
        )
    if values.get("slice") is None:
        raise ConfigError("Which slice?", hint=f"For example: elastic inject {what} 1.")
    number, given, yes = _slice(values["slice"]), values.get("seconds"), bool(values.get("yes"))
    if what == "slice-down":
        act = partial(faults.slice_down, target, number, seconds=entry.time("--for", given, 0.0), yes=yes)
    elif what == "drain-node":
        seconds = _some_time("--for", given, faults.DRAIN_SECONDS)
        act = partial(faults.drain_node, target, number, seconds=seconds, yes=yes)
    else:
        act = partial(faults.slow, target, number, seconds=_some_time("--for", given, faults.SLOW_SECONDS))
    target.check(number)
    return act


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


def _slice(value: Any) -> int:
    if not str(value).isdecimal():
        raise ConfigError(f"A slice is a whole number, not {value}.", hint="For example: 1.")
    return entry.whole_number("The slice", value)


def heal(target: Target, slice_: str | None) -> tuple[str, ...]:
    """End the faults of a slice, or of all; return the nodes that take pods again.

    Raises:
      ConfigError: The slice is not one of the target's.
      PathwaysError: The cluster could not be reached, or refused.
    """
    number = _slice(slice_) if slice_ is not None else None
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
