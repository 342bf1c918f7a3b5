"""``%pathways elastic``: the elastic training run of a notebook, and faults on purpose, also from the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from pathways_jupyter.commands.declaration import CLUSTER, Command, Kind, Option, Source, Word

FAULTS = ("slice-down", "drain-node", "slow")
_YES = Option("--yes", "yes", "hit the workers of a real cluster without asking", kind=Kind.FLAG)
_FOR = Option(
    "--for",
    "seconds",
    "how long it lasts: seconds, or 30s, 2m",
    metavar="TIME",
    default="slice-down: until its worker is back; drain-node and slow: 30 s",
)
AT_RANDOM = "at random"
USES: Mapping[str, frozenset[str]] = {
    "": frozenset({"metrics"}),
    "export": frozenset(),
    # Harmless there, and a part of the line before it.
    "heal": frozenset({"yes"}),
    "inject": frozenset({"slice", "seconds", "after", "at_step", "yes"}),
    AT_RANDOM: frozenset({"slice", "seconds", "random", "every", "seed", "times", "yes"}),
}
"""What each action of ``elastic`` uses besides its next word; with ``--random``, :data:`AT_RANDOM` is one."""
ELASTIC = Command(
    "elastic",
    "The elastic training run of this notebook: slices and loss over time, goodput, events; live while it runs.",
    words=(
        Word("action", "what to do; default: show the run", choices=("inject", "heal", "export")),
        Word(
            "what",
            "inject: slice-down, drain-node or slow; heal: the slice, or nothing for all; export: the file, .json or "
            ".trace.json for Perfetto",
            source=Source.FAULTS,
        ),
        Word("slice", "inject: the slice", source=Source.SLICES),
    ),
    options=(
        Option("--metric", "metrics", "draw this metric; may be repeated", kind=Kind.LIST, metavar="NAME"),
        _FOR,
        Option("--after", "after", "do it after TIME, while another cell runs", metavar="TIME"),
        Option("--at-step", "at_step", "do it when a run has done so many steps", kind=Kind.NUMBER),
        Option("--random", "random", "faults at random on slices of this session, until heal", kind=Kind.FLAG),
        Option("--every", "every", "with --random: time between two", metavar="TIME", default="60s"),
        Option("--seed", "seed", "with --random: choose the same ones again", kind=Kind.NUMBER),
        Option("--times", "times", "with --random: how many", kind=Kind.NUMBER, default="until heal"),
        _YES,
    ),
    examples={
        "elastic": "in the cell of train_loop, above it",
        "elastic --metric loss --metric accuracy": "with two curves",
        "elastic inject slice-down 1 --for 10s --after 5s": "in 5 seconds take slice 1 down, for 10 seconds",
        "elastic inject slow 2 --for 30s": "its hosts stand still most of the time",
        "elastic inject drain-node 1": "cordon its nodes and evict its workers",
        "elastic inject --random --every 60s": "a fault a minute, until elastic heal",
        "elastic heal 1": "end the faults of slice 1 now",
        "elastic export run.trace.json": "open it at ui.perfetto.dev",
    },
)
_FAULT_PLACE = (
    Option("--session", "session", "session id, or the beginning of one", metavar="ID", source=Source.SESSIONS),
    Option("--job", "job", "slices of this PathwaysJob instead of a session's", metavar="JOB", source=Source.JOBS),
    *CLUSTER,
)
ELASTIC_INJECT = Command(
    "elastic inject",
    "A fault on purpose in a slice of one of your sessions or jobs; it is undone by itself.",
    words=(
        Word("what", "which", choices=FAULTS, required=True),
        Word("slice", "the slice", source=Source.SLICES, required=True),
    ),
    options=(_FOR, _YES, *_FAULT_PLACE),
    examples={
        "elastic inject slice-down 1 --for 30s": "of the only session on this machine",
        "elastic inject slow 0 --job train --local": "of a job on the embedded cluster",
    },
)
ELASTIC_HEAL = Command(
    "elastic heal",
    "End injected faults now.",
    words=(Word("slice", "the slice; default: all", source=Source.SLICES),),
    options=_FAULT_PLACE,
    examples={"elastic heal 1": "of the only session on this machine"},
)
