"""``pathways-jupyter demo``."""

from __future__ import annotations

import sys

import click


@click.command()
def demo() -> None:
    """Connect to two slices of the embedded cluster, train, lose one, recover, and clean up.

    Each step is timed and checked; exit code 0 means that all of it held. Needs no cluster, no TPU and no network.
    """
    from rich.console import Console

    from pathways_jupyter.demo import story

    sys.exit(0 if story.run(Console()) else 1)
