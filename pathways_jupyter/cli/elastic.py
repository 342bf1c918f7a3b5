"""``pathways-jupyter elastic``: faults on purpose in a training run, from outside of its notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pathways_jupyter.cli.options import epilog, examples, given, show_json, takes
from pathways_jupyter.commands.declaration import Command
from pathways_jupyter.commands.elastic import ELASTIC_HEAL, ELASTIC_INJECT


@click.group(epilog=examples("elastic inject slice-down 1 --for 30s", "elastic heal"))
def elastic() -> None:
    """Faults on purpose: take slices of one of your sessions or jobs down, drain their nodes, make them slow."""


def _takes(about: Command) -> Callable[[Callable[..., Any]], click.Command]:
    def decorate(function: Callable[..., Any]) -> click.Command:
        name = about.name.partition(" ")[2]
        return elastic.command(name, short_help=about.summary, epilog=epilog(about))(takes(about)(function))

    return decorate


@_takes(ELASTIC_INJECT)
def inject(json: bool, **values: Any) -> None:
    """Inject fault WHAT into slice SLICE: slice-down, drain-node or slow; it is undone by itself."""
    from pathways_jupyter import fault_requests

    options = given(values)
    fault = fault_requests.inject(fault_requests.target(options), options)
    if json:
        show_json(fault)
    else:
        click.echo(str(fault))


@_takes(ELASTIC_HEAL)
def heal(json: bool, **values: Any) -> None:
    """End injected faults of slice SLICE, or of all slices, now."""
    from pathways_jupyter import fault_requests

    options = given(values)
    nodes = fault_requests.heal(fault_requests.target(options), options.get("slice"))
    if json:
        show_json({"nodes": nodes})
    else:
        click.echo(fault_requests.healed(nodes))
