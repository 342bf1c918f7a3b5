"""``pathways-jupyter demo``: a demonstration on the embedded cluster."""

from __future__ import annotations

import sys

import click

from pathways_jupyter.cli.declared import examples
from pathways_jupyter.cli.terminal import show_json


@click.command(epilog=examples("demo"))
@click.option("--json", "as_json", is_flag=True, help="Print the steps as JSON; the narration goes to standard error.")
def demo(as_json: bool) -> None:
    """Connect to two slices of the embedded cluster, train, lose one, recover, and clean up.

    Each step is timed and checked; exit code 0 means that all checks passed. Needs no cluster, no TPU and no network.
    """
    from rich.console import Console

    from pathways_jupyter.demo import story

    console = Console(stderr=as_json)
    steps: list[story.Step] = []
    held = story.run(console, steps)
    if as_json:
        show_json({"held": held, "steps": steps})
    sys.exit(0 if held else 1)
