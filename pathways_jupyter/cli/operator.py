"""``pathways-jupyter operator``: sweeps a cluster for as long as it runs."""

from __future__ import annotations

import sys

import click


@click.command(
    short_help="Sweep away what dead sessions left, until stopped.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def operator(arguments: tuple[str, ...]) -> None:
    """Sweep away what dead sessions left, until stopped; its own parser knows the options."""
    from pathways_jupyter.service import operator as program

    # The same program as in a pod, where nothing but it is wanted: it has a parser of its own.
    sys.exit(program.main(list(arguments)))
