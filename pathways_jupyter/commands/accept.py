"""``pathways-jupyter accept``, the promises of this package as checks, and ``demo``, some of them as a show."""

from __future__ import annotations

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import Command, Option, ValueKind
from pathways_jupyter.commands.session import CONNECT

_SET_BY_THE_CHECKS = frozenset(
    {"wait", "at_least", "linger", "max_lifetime", "lease_seconds", "keep", "job", "unpickle", "tunnel", "yes"}
)
OWN = (
    Option("--destructive", "include the checks that take a slice of their own session down", ValueKind.FLAG),
    Option("--only", "run this check, and what it needs; may be repeated", ValueKind.LIST, metavar="NAME"),
    Option("--skip", "leave this check out; may be repeated", ValueKind.LIST, metavar="NAME"),
    Option("--dry-run", "only list the checks", ValueKind.FLAG),
    Option("--yes", "take a slice down without asking", ValueKind.FLAG),
    Option(
        "--report", "where the report is written", metavar="FILE", default="pathways-accept-TIME.md in this directory"
    ),
)
"""The options of ``accept`` that are no settings of a connection."""
COMMANDS = (
    Command(
        "accept",
        "Check on your own cluster what this package promises.",
        options=(
            *OWN,
            *(option for option in CONNECT.options if option.name not in _SET_BY_THE_CHECKS),
        ),
        examples={
            "accept --context my-gke": "with two free slices of the only service, or one",
            "accept --context my-gke --service pathways-cluster --destructive": "also lose slices",
            "accept --local --only interruption": "one check, on the embedded cluster",
            "accept --dry-run --destructive": "what it would do",
        },
        details="It connects, computes, cuts its own connections, kills its own processes, and sees that nothing is "
        "left. The report can be attached to an issue: it has no tokens, and neither addresses nor names of users.",
        in_terminal="Exit code 1 if a check failed or something is left behind; a check that cannot run is skipped.",
        only=Face.TERMINAL,
    ),
    Command(
        "demo",
        "Connect to two slices of the embedded cluster, train, lose one, recover, and clean up.",
        examples={"demo": "needs no cluster, no TPU and no network"},
        in_terminal="Each step is timed and checked; exit code 0 means that all checks passed.",
        only=Face.TERMINAL,
    ),
)
