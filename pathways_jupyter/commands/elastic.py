"""``%pathways elastic``: the elastic training run of a notebook."""

from __future__ import annotations

from pathways_jupyter.commands.declaration import Command, Kind, Option, Source, Word

ELASTIC = Command(
    "elastic",
    "The elastic training run of this notebook: slices and loss over time, goodput, events; live while it runs.",
    words=(
        Word("action", "what to do; default: show the run", choices=("inject", "heal", "export")),
        Word("what", "inject: slice-down; heal: the slice; export: the file, .json or .trace.json for Perfetto"),
        Word("slice", "inject: the slice", source=Source.SLICES),
    ),
    options=(
        Option(
            "--for",
            "seconds",
            "how long the slice stays down",
            kind=Kind.NUMBER,
            metavar="SECONDS",
            default="until its worker is back",
        ),
        Option("--after", "after", "do it in SECONDS, while another cell runs", kind=Kind.NUMBER, metavar="SECONDS"),
        Option("--yes", "yes", "kill a worker of a real cluster without asking", kind=Kind.FLAG),
    ),
    examples={
        "elastic": "in the cell of train_loop, above it",
        "elastic inject slice-down 1 --for 10 --after 5": "in 5 seconds take slice 1 down, for 10 seconds",
        "elastic heal 1": "end that now",
        "elastic export run.trace.json": "open it at ui.perfetto.dev",
    },
)
