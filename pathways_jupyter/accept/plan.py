"""The checks, in the order in which they run, and what one of them came to."""

from __future__ import annotations

import traceback
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from pathways_jupyter.base.errors import ConfigError, PathwaysError
from pathways_jupyter.base.sentences import Face

NOT_CHOSEN = "not chosen"
_SLICE_SECONDS = 1200.0
"""A worker that was killed twice is replaced after 20 s at the earliest, and loads its image on a new node."""
_CALLS = 5


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
      title: What it does, for people.
      in_kernel: Whether it runs in the process that has the session, beside JAX.
      destructive: Whether it takes a slice of the session down.
      seconds: The check fails if it takes longer.
    """

    name: str
    title: str
    in_kernel: bool = True
    destructive: bool = False
    seconds: float = 300.0


CONNECT = Check("connect", "get a proxy of one's own and a tunnel to it, and point JAX at it")
DISCONNECT = Check("disconnect", "disconnect, and find nothing left")
CHECKS = (
    Check("doctor", "what a connection needs is there", in_kernel=False),
    CONNECT,
    Check("compute", "multiply matrices on every chip"),
    Check("all-reduce", "add an array over all slices"),
    Check("transfer", "move an array to a chip and back"),
    Check("colocated", "run a cell on every TPU host"),
    Check("interruption", "cut the tunnel's connection; arrays survive"),
    Check("slice-lost", "kill the workers of a slice; it comes back", destructive=True, seconds=_SLICE_SECONDS),
    Check("elastic", "train through the loss of a slice", destructive=True, seconds=_SLICE_SECONDS),
    DISCONNECT,
    Check("kernel-killed", "kill a process that has a session; nothing is left", in_kernel=False),
    Check("lease", "kill its supervisor too; the Lease runs out, and a sweep removes the proxy", in_kernel=False),
)


class Outcome(StrEnum):
    """Outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    Attributes:
      seconds: How long it took.
      lines: What it found; for one that failed or was skipped, the last one says why.
    """

    name: str
    title: str
    outcome: Outcome
    seconds: float = 0.0
    lines: tuple[str, ...] = ()


class Skipped(Exception):
    """A check cannot run here; the message says why."""


class Broken(Exception):
    """A promise does not hold; the message says which."""


def outcome_of(error: Exception) -> tuple[Outcome, str]:
    """Return the outcome of a check that `error` ended, and the reason for people."""
    match error:
        case Skipped():
            return Outcome.SKIPPED, str(error)
        case Broken():
            return Outcome.FAILED, str(error)
        case PathwaysError():
            return Outcome.FAILED, f"{error} {error.advice(Face.TERMINAL)}".strip()
    # Whatever JAX or another library raises; the last calls are for the report.
    return Outcome.FAILED, "".join(traceback.format_exception(error, limit=-_CALLS))


def choose(only: Collection[str], skip: Collection[str], *, destructive: bool) -> dict[str, str]:
    """Return why checks are left out, by their names; those that are not in it run.

    Raises:
      ConfigError: There is no check of such a name, or it needs permission to be destructive.
    """
    by_name = {each.name: each for each in CHECKS}
    for name in (*only, *skip):
        if name not in by_name:
            raise ConfigError(f"There is no check {name!r}.", hint=f"Checks: {', '.join(by_name)}.")
    for name in only:
        if by_name[name].destructive and not destructive:
            raise ConfigError(f"{name} takes a slice down.", hint="Add --destructive to allow it.")
    left_out = {}
    for check in CHECKS:
        if (only and check.name not in only) or check.name in skip:
            left_out[check.name] = NOT_CHOSEN
        elif check.destructive and not destructive:
            left_out[check.name] = "it takes a slice down; --destructive includes it"
    if any(each.in_kernel and each.name not in left_out for each in CHECKS):
        # Part of every check that needs a session.
        for each in (CONNECT, DISCONNECT):
            left_out.pop(each.name, None)
    return left_out
