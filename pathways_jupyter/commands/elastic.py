"""``%pathways elastic``: the elastic training run of a notebook, and faults on purpose, also from the terminal."""

from __future__ import annotations

from pathways_jupyter.base.sentences import Face
from pathways_jupyter.commands.declaration import CLUSTER, Command, Option, Source, ValueKind, Word

_YES = Option("--yes", "hit the workers of a real cluster without asking", ValueKind.FLAG)
_FOR = Option(
    "--for",
    "how long it lasts: seconds, or 30s, 2m",
    name="seconds",
    metavar="TIME",
    default="slice-down: until its worker is back; drain-node: 30 s",
)
_NUMBER = "the service's number of it or the session's own, such as 6 or 0 of a slice 6 (your 0)"
_INJECT = (
    Word("fault", "which", choices=("slice-down", "drain-node"), required=True),
    Word("slice", f"the slice: {_NUMBER}", source=Source.SLICES, required=True),
)
_HEAL = (Word("slice", f"the slice: {_NUMBER}; default: all", source=Source.SLICES),)
_PLACE = (
    Option("--session", "session id, or the beginning of one", metavar="ID", source=Source.SESSIONS),
    Option("--job", "slices of this PathwaysJob instead of a session's", metavar="JOB"),
    *CLUSTER,
)
COMMANDS = (
    Command(
        "elastic",
        "The elastic training run of this notebook: slices and loss over time, goodput, events; live while it runs.",
        options=(
            Option("--metric", "draw this metric; may be repeated", ValueKind.LIST, name="metrics", metavar="NAME"),
        ),
        examples={
            "elastic": "in the cell of train_loop, above it",
            "elastic --metric loss --metric accuracy": "with two curves",
        },
        details="Also: elastic inject and elastic heal for faults on purpose, elastic export for a file.",
        only=Face.NOTEBOOK,
    ),
    Command(
        "elastic inject",
        "A fault on purpose in a slice of this session; it is undone by itself.",
        words=_INJECT,
        options=(
            _FOR,
            Option("--after", "do it after TIME, while another cell runs", metavar="TIME"),
            Option("--at-step", "do it when a run has done so many steps", ValueKind.NUMBER),
            _YES,
        ),
        examples={
            "elastic inject slice-down 1 --for 10s --after 5s": "in 5 seconds take slice 1 down, for 10 seconds",
            "elastic inject drain-node 1": "cordon its nodes and evict its workers",
        },
        only=Face.NOTEBOOK,
    ),
    Command(
        "elastic heal",
        "End injected faults now, and cancel those to come.",
        words=_HEAL,
        # Harmless here, and a part of the line before it.
        options=(_YES,),
        examples={"elastic heal 1": "of slice 1"},
        only=Face.NOTEBOOK,
    ),
    Command(
        "elastic export",
        "Write the elastic training run of this notebook to a file.",
        words=(Word("file", "elastic.json if left out", source=Source.FILES),),
        examples={"elastic export run.json": "events, steps, goodput and snapshots, as JSON"},
        only=Face.NOTEBOOK,
    ),
    Command(
        "elastic inject",
        "A fault on purpose in a slice of one of your sessions or jobs; it is undone by itself.",
        words=_INJECT,
        options=(_FOR, _YES, *_PLACE),
        examples={
            "elastic inject slice-down 1 --for 30s": "of the only session on this machine",
            "elastic inject slice-down 0 --job train --local": "of a job on the embedded cluster",
        },
        only=Face.TERMINAL,
    ),
    Command(
        "elastic heal",
        "End injected faults now.",
        words=_HEAL,
        options=_PLACE,
        examples={"elastic heal 1": "of the only session on this machine"},
        only=Face.TERMINAL,
    ),
)
