"""``pathways-jupyter operator``: sweep a cluster periodically."""

from __future__ import annotations

import sys

import click


@click.command(
    short_help="Remove what dead sessions left, periodically until stopped.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def operator(arguments: tuple[str, ...]) -> None:
    """Remove what dead sessions left, periodically until stopped; the program parses its own options."""
    from pathways_jupyter.service import operator as program

    # It has its own parser because it also runs as a pod, without this command line.
    sys.exit(program.main(list(arguments)))
