"""``pathways-jupyter operator``, which is declared but for ``run``, whose program parses its own options."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from pathways_jupyter.cli import declared

operator = declared.group("operator")


@operator.command(
    short_help="Run it until stopped.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: Sequence[str]) -> None:
    """Run it until stopped."""
    from pathways_jupyter.operator import main as program

    # It has its own parser because the embedded cluster runs it as a pod, without this command line.
    sys.exit(program.main(list(arguments)))
